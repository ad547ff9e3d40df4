"""Behind `waterclock trace`: watch a hierarchical timing wheel turn, one bucket at a time.

    durations.py    1h30m and back
    scenario.py     a wheel and its timers: a worked example, or one's own
    walk.py         the wheel on its way through a scenario, a record a step
    picture.py      a step as text
    command.py      the options, and what is printed

Rule 1: the wheel is the real one, `waterclock.wheel.reference`, seen through `snapshot()`; nothing is acted.
Rule 2: time is whole milliseconds. Tables show it relative to the start, `--json` as it is.
Rule 3: a step is one and the same record for tables, for `--json` and in the files of `waterclock/traces`.
"""

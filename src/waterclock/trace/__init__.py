"""Behind `waterclock trace`: watch a hierarchical timing wheel turn, one bucket at a time.

    moments.py      1h30m and back; how a moment is written: since the start, as a time of day, as c+1
    scenario.py     a wheel and its timers: a worked example, or one's own
    walk.py         the wheel on its way through a scenario, a record a step
    picture.py      a step as text in 80 columns: the buckets in use, or all its parts: every bucket of every level,
                    virtual ids, the middle of an advance
    live.py         the walk in real time, on a thread that takes expired buckets
    flat.py         a flat wheel of a million buckets beside five levels
    page.py         the steps in a browser, on the console's dial
    command.py      the options, and what is printed

Rule 1: the wheel is the real one, `waterclock.wheel.reference`, seen through `snapshot()`; nothing is acted.
Rule 2: time is whole milliseconds. Tables show it since the start or as the clock would, `--json` as it is.
Rule 3: a step is one and the same record for tables, for `--json` and in the files of `waterclock/traces`.
"""

"""A pipeline's file is run, whichever engine does it: `waterclock run`, and `waterclock state` beside it.

    command.py    the options, the run, what is printed
    engines.py    Spark, and this process alone: what the command needs of each
    progress.py   the bar and the table at the end
    state.py      `waterclock state`: what a checkpoint holds, and how it is carried over
    moving.py     from one engine to the other

Rule 1: what is one engine's alone stands in its room (spark/, local/); what both are made of, in streaming/.
Rule 2: importing this imports neither.
"""

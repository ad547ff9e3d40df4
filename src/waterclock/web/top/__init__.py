"""The console in a terminal.

command.py    `waterclock top URL...`
process.py    one that is watched
panels.py     what a process says, as tables
drawing.py    tables as lines of a width
screen.py     the lines in a terminal, live: Textual
"""

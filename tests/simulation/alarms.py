"""What the broker says of damage, it says where there is some: kills, power cuts and full disks leave none.

A sentence of these in a history without damaged files is a problem: either it is not true, or something was written
before what it stands on.
"""

from __future__ import annotations

import logging

from waterclock.simulation.world import world

SENTENCES = (
    "%s%s is damaged, and the segment with its markers is gone",
    "the write-ahead log in %s is damaged",
    "%s is gone, and the write-ahead log has records of it",
    "%s is older than the files beside it",
    "%s is gone, or was never here",
)


ROWS = "%s%s was damaged, or of before a compaction"  # with how many rows in place of how many

expected = [False]  # files are damaged in the present universe


def is_alarm(record: logging.LogRecord) -> bool:
    """Rows that a power cut has torn may be too many; those that a snapshot vouches for are never too few."""
    said, args = str(record.msg), record.args
    if said.startswith(ROWS) and isinstance(args, tuple):
        return bool(args[2] > args[3])  # type: ignore[operator]
    return said.startswith(SENTENCES)


class Alarms(logging.Handler):
    """A handler of the broker's log lines, in a simulated thread."""

    def emit(self, record: logging.LogRecord) -> None:
        here = world()
        if not expected[0] and here is not None and here.thread is not None and is_alarm(record):
            here.problem("false alarm", f"{here.thread.process.name}: {record.getMessage()}")


def listen() -> None:
    logging.getLogger("waterclock").addHandler(Alarms())

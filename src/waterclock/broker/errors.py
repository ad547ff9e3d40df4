"""What can go wrong with a broker outside of its protocol."""

from waterclock.errors import UsageError, WaterclockError

DAMAGED = ".damaged"
"""What is put behind a file's name to have it passed over; a start still takes from it which offsets were given."""


def renaming(*paths: str) -> str:
    """The way on without these files, in words.

    >>> renaming("a", "b")
    'rename a to a.damaged and b to b.damaged'
    """
    return f"rename {' and '.join(f'{path} to {path}{DAMAGED}' for path in paths)}"


class LogDamaged(WaterclockError):
    """A file of the log is broken where no crash can break it; the message names the file, the byte and the ways on."""


class DataInUse(UsageError):
    """Another broker has the data folder open."""

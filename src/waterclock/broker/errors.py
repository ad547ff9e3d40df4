"""What can go wrong with a broker outside of its protocol, and how what nobody knows is moved aside.

Rule 1: it goes into `unknown/` of the data folder; it is never deleted, and nothing reads it there.
Rule 2: nothing that lies there already is replaced: what has its name gets a number behind it.
"""

from __future__ import annotations

from typing import Final

from waterclock.disk import free_name, make_folder, write_whole
from waterclock.disk import set_aside as renamed
from waterclock.errors import UsageError, WaterclockError
from waterclock.outside import open_file, os

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


FOLDER: Final = "unknown"


def set_aside(data: str, path: str) -> str:
    """Move a file or folder aside within the data folder `data`, durably; where it lies now. OSError."""
    return renamed(path, _place(data, os.path.basename(path)))


def set_bytes_aside(data: str, path: str, at: int, size: int) -> str:
    """Keep `size` bytes from byte `at` of a file; where they lie now. The file stays as it is. OSError."""
    place = free_name(_place(data, f"{os.path.basename(path)}.{at}"))
    with open_file(path, "rb") as file:
        file.seek(at)
        write_whole(place, file.read(size), 0o600)
    return place


def _place(data: str, name: str) -> str:
    folder = os.path.join(data, FOLDER)
    make_folder(folder)
    return os.path.join(folder, name)

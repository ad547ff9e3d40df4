"""What nobody knows is moved aside, into `unknown/` of the data folder: it is never deleted, and nothing reads it there.

Rule 1: nothing that lies there already is replaced: what has its name gets a number behind it.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Final

from waterclock.disk import flush_folder, make_folder, write_whole

FOLDER: Final = "unknown"


def set_aside(data: str, path: str) -> str:
    """Move a file or folder aside within the data folder `data`, durably; where it lies now. OSError."""
    place = _free_place(data, os.path.basename(path))
    os.rename(path, place)
    flush_folder(os.path.dirname(path))
    flush_folder(os.path.dirname(place))
    return place


def set_bytes_aside(data: str, path: str, at: int, size: int) -> str:
    """Keep `size` bytes from byte `at` of a file; where they lie now. The file stays as it is. OSError."""
    place = _free_place(data, f"{os.path.basename(path)}.{at}")
    with open(path, "rb") as file:
        file.seek(at)
        write_whole(place, file.read(size), 0o600)
    return place


def _free_place(data: str, name: str) -> str:
    folder = os.path.join(data, FOLDER)
    make_folder(folder)
    names = (name if not number else f"{name}.{number}" for number in count())
    return next(path for path in (os.path.join(folder, name) for name in names) if not os.path.lexists(path))

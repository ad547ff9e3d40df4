"""Onto the disk: names, small files, logs; each in one way.

Rule 1: a name that was made, changed or removed is durable once its folder was flushed; a folder's own name once the one
    above it was.
Rule 2: a flush that failed is never tried again. The cache may then be clean and the disk not: the process ends before
    it says anything more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.log.segment import Segment


# Names and small files


def flush_folder(folder: str) -> None:
    """Make names made, changed or removed in `folder` durable."""
    _flush(folder)


def flush_file(path: str) -> None:
    """Make a file's bytes durable, whoever wrote them."""
    _flush(path)


def _flush(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: str) -> None:
    """Have a folder, and those above it; the name of each that was not there is durable. OSError where it cannot be."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(os.path.abspath(folder))
    make_folder(above)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):  # another process may have made it just now
            raise
    flush_folder(above)


def write_whole(path: str, data: bytes) -> None:
    """Replace the file at `path` by one with `data`, durably: a crash leaves the old or the new one."""
    with open(path + ".new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    flush_folder(os.path.dirname(path))


# Logs


def flush_files(files: Iterable[tuple[Segment, int]]) -> None:
    """Put what was appended to these segments onto the disk. Any thread may do that; rule 2 holds."""
    try:
        for segment, _ in files:
            segment.flush()
    except OSError as error:
        flush_failed(error)


def make_durable(partition: Partition) -> None:
    """Put all that was appended to a partition onto the disk now, and have it know."""
    files = partition.unflushed()
    flush_files(files)
    partition.flushed(partition.end, files)


def flush_failed(error: Exception) -> NoReturn:
    """End the process (rule 2)."""
    os.write(2, f"waterclock broker: a flush failed, the process ends: {error}\n".encode())
    os._exit(1)

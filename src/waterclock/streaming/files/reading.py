"""Files into blocks of rows, with a place for every line that cannot be read. No Spark in this file.

    layout.py    what a row must be, its id, dead letters
    jsonl.py     a block of JSON lines into rows, the fast way or the slow one
    parquet.py   a Parquet file into rows

What opening or reading a file may meet, and whose doing it is:

    its content is no such file (Arrow says so, without a number of the system's)      the file's: a dead letter
    it is a folder, a loop of links, no regular file, or has too long a name           the file's
    this user may not read it, while the folder that it lies in can be listed          the file's
    it is not there                                  the driver decides, which has the folder: FileNotFoundError
    anything else: a disk or a mount that fails, a folder that this user may not list, no memory, no more files to be had,
        a scheme that is not opened here             the place's: EnvironmentMissing, nothing of the batch is written

Rule 1: nothing in a file makes `read_file` raise: a batch that fails over its input would fail again on every re-run.
Rule 2: a file is read in blocks of whole lines; what comes out does not depend on where a block ends.
Rule 3: what is the place's doing is never put aside as a file's: the run would be green, and would have read nothing.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs

from waterclock.errors import EnvironmentMissing
from waterclock.streaming.files.jsonl import fast as _fast
from waterclock.streaming.files.jsonl import slow as _slow
from waterclock.streaming.files.parquet import parquet_blocks
from waterclock.streaming.layout import TYPES, Block, Layout, dead_file, dead_letters

__all__ = ["BLOCK_BYTES", "TYPES", "Block", "Layout", "open_file", "read_file"]

BLOCK_BYTES = 4 << 20
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh", b"\x04\x22\x4d\x18", b"PK\x03\x04")  # magic bytes
_OF_THE_FILE = (errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def read_file(path: str, layout: Layout, content: pa.Buffer | None = None) -> Iterator[Block]:
    """The blocks of one file; one that is no such file, or that nobody could open, is one dead letter.

    Its bytes are `content` where they were brought, else those that lie at `path`.
    FileNotFoundError where it is not there; EnvironmentMissing where it is the place that fails.
    """
    try:
        with open_file(path) if content is None else pa.BufferReader(content) as file:
            if _is_packed(file):
                yield dead_file(path, layout, "compressed files are not read: decompress it first")
            elif layout.format == "parquet":
                yield from parquet_blocks(file, path, layout)
            else:
                yield from _json_blocks(file, path, layout)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        if not _is_of_the_file(error, path):
            raise _failing(path, error) from error
        # a broken Parquet footer may hold names that are no text: that is a ValueError
        yield dead_file(path, layout, f"cannot be read: {error}")


def _is_of_the_file(error: Exception, path: str) -> bool:
    """Whether it would fail so on every machine, and the other files of the folder would not."""
    if isinstance(error, MemoryError | pa.ArrowCancelled):
        return False
    if not isinstance(error, OSError) or error.errno is None or error.errno in _OF_THE_FILE:
        return True
    return error.errno in _FORBIDDEN and os.access(os.path.dirname(_local(path)), os.R_OK | os.X_OK)


def _failing(path: str, why: object) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"the source's file {path} cannot be read on {socket.gethostname()}: {why}. It is not the file's doing, so it is "
        "not put aside, and nothing of its batch was written. Mend the place; the same command goes on from there"
    )


def open_file(path: str) -> Any:
    """Open a file of this machine by its URI, or by the path that Spark says; EnvironmentMissing for another scheme.

    Hadoop writes a local path as `file:` and the path as it is (`file:/in/100%.jsonl`); a URI has three slashes and is
    escaped (`file:///in/100%25.jsonl`).
    """
    if path.startswith("file:/"):
        return pa.fs.LocalFileSystem().open_input_file(_local(path))
    if "://" in path:
        raise _failing(path, "no worker opens what does not lie in a folder of its machine")
    filesystem, inner = pa.fs.FileSystem.from_uri(path)
    return filesystem.open_input_file(inner)


def name_of(path: str) -> str:
    """The name of a file by its URI, or by the path that Spark says, which is escaped nowhere else."""
    return (_local(path) if path.startswith("file:/") else path).rpartition("/")[2]


def _local(path: str) -> str:
    return unquote(path.removeprefix("file://")) if path.startswith("file:///") else path.removeprefix("file:")


def _is_packed(file: Any) -> bool:
    start = file.read(6)
    file.seek(0)
    return any(start.startswith(magic) for magic in _PACKED)


def _json_blocks(file: Any, path: str, layout: Layout) -> Iterator[Block]:
    first = 1
    for block in _whole_lines(file):
        rows = _fast(block, layout)
        yield Block(rows, dead_letters([])) if rows is not None else _slow(block, layout, path, first)
        first += block.count(b"\n")


def _whole_lines(file: Any) -> Iterator[bytes]:
    parts: list[bytes] = []
    while chunk := file.read(BLOCK_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join((*parts, head, newline))
            parts = []
        parts.append(tail)
    if rest := b"".join(parts):
        yield rest

"""A place: where a checkpoint or a source's files lie. The seam between what is done with files and who keeps them.

    a path of this machine      pathlib.Path: as it always was, through disk.py
    a URI, such as hdfs:// s3a:// file://    HadoopPath (hadoop.py): through Spark's Java, on the driver

Rule 1: what pathlib has a name for has that name for both; the rest are the functions here.
Rule 2: a URI is a text: nothing is resolved, and there are no links. Two that are written in two ways are two places.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import waterclock.disk as disk
from waterclock.errors import UsageError
from waterclock.streaming.places.hadoop import HadoopPath

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Place(Protocol):
    """What is used of a place by pathlib's names."""

    @property
    def name(self) -> str: ...
    @property
    def stem(self) -> str: ...
    @property
    def parent(self) -> Place: ...
    @property
    def parents(self) -> Sequence[Place]: ...
    def __truediv__(self, name: str, /) -> Place: ...
    def exists(self) -> bool: ...
    def is_dir(self) -> bool: ...
    def is_file(self) -> bool: ...
    def iterdir(self) -> Iterator[Place]: ...
    def read_bytes(self) -> bytes: ...
    def read_text(self) -> str: ...


def is_uri(text: str) -> bool:
    """Whether a text names a place behind a scheme.

    >>> [is_uri(text) for text in ("s3a://bucket/a", "file:/tmp/a", "a/b", "/a:/b")]
    [True, True, False, False]
    """
    return _URI.match(text) is not None


def place_of(given: str | Path | Place, folder: Path) -> Place:
    """The place that `given` names, a path relative to `folder`; UsageError for a URI that cannot be one.

    >>> str(place_of("s3a://bucket//a/", Path("/x"))), str(place_of("a", Path("/x")))
    ('s3a://bucket/a', '/x/a')
    """
    if isinstance(given, HadoopPath):
        return given
    text = str(given)
    if not is_uri(text):
        return folder / text
    scheme, authority, path, *_ = urlsplit(text.replace("?", "%3F").replace("#", "%23"))
    parts = [part for part in path.replace("%3F", "?").replace("%23", "#").split("/") if part]
    if ":" in authority.rpartition("@")[0]:
        raise UsageError("a URL holds a password: leave it out, and give it to Spark as its file system asks for it")
    if not text.isprintable() or not parts or {".", ".."} & {*parts}:
        raise UsageError(f"{text!r} names no folder: write it as scheme://host/folder, without . and ..")
    return HadoopPath(f"{scheme}://{authority}/{'/'.join(parts)}")


def is_remote(place: object) -> bool:
    """Whether a place is reached through Spark alone."""
    return isinstance(place, HadoopPath)


def names_in(folder: Place) -> list[str]:
    """The names that a folder lists; none if it is not there, or is a file."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if isinstance(folder, HadoopPath):
            return [entry.name for entry in folder.entries()]
        return os.listdir(str(folder))
    return []


def written_ms(file: Place) -> int:
    """When a file was last written, in milliseconds since 1970, by the clock of who keeps it."""
    if isinstance(file, HadoopPath):
        return file.written_ms()
    return os.stat(str(file)).st_mtime_ns // 1_000_000


def make_folder(folder: Place) -> None:
    """Have a folder, and those above it. OSError, or an error of ours, where it cannot be made."""
    if isinstance(folder, HadoopPath):
        folder.make_folder()
    else:
        disk.make_folder(str(folder))


def write_whole(file: Place, data: bytes) -> None:
    """Replace a file by one with `data`, whole or not at all; when it returns, that outlasts a crash."""
    if isinstance(file, HadoopPath):
        file.write_whole(data)
    else:
        disk.write_whole(str(file), data)


def remove(place: Place) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if isinstance(place, HadoopPath):
        place.remove()
        return
    path = Path(str(place))
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def copy_folder(folder: Place, to: Place) -> None:
    """Copy a folder, with all that is in it, into the place `to`, if nothing is."""
    if isinstance(folder, Path) and isinstance(to, Path):
        shutil.copytree(folder, to)
        return
    make_folder(to)
    for name in names_in(folder):
        part = folder / name
        copy_folder(part, to / name) if part.is_dir() else write_whole(to / name, part.read_bytes())

"""Folders in which small files are made once and never changed: of this machine, and those that a URL names.

    LocalFolder    a path: through disk.py
    StoreFolder    what pyarrow reaches: to read, and to take files away. It cannot make a file only if that is new
    PlaceFolder    what Spark's Java reaches (spark/places): of two that make one file, the store refuses one

Rule 1: a file that was made is whole, and outlasts a crash; of two that make one at once, one is refused.
Rule 2: names are relative to the folder, with / between a folder in it and what is in that.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow.fs

import waterclock.disk as disk
from waterclock.errors import UsageError
from waterclock.sinks.files.files import place_of


class Folder(Protocol):
    """A folder of files that are made once."""

    def names(self, within: str = "") -> list[str]:
        """The names in it, or in the folder `within`; none where that is not there."""

    def read(self, name: str) -> bytes:
        """FileNotFoundError where it is not there."""

    def create_new(self, name: str, data: bytes) -> bool:
        """Make a file; whether it was this call that made it."""

    def make(self, within: str = "") -> None:
        """Have the folder, or the folder `within` it."""

    def remove(self, name: str) -> None:
        """Take a file away; nothing where it is not there."""


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)

    def __str__(self) -> str:
        return self._path

    def names(self, within: str = "") -> list[str]:
        """See `Folder`."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(os.path.join(self._path, within)))
        return []

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        return Path(self._path, name).read_bytes()

    def create_new(self, name: str, data: bytes) -> bool:
        """See `Folder`."""
        return disk.create_whole(os.path.join(self._path, name), data)

    def make(self, within: str = "") -> None:
        """See `Folder`."""
        disk.make_folder(os.path.join(self._path, within))

    def remove(self, name: str) -> None:
        """See `Folder`."""
        Path(self._path, name).unlink(missing_ok=True)


class StoreFolder:
    """A folder that pyarrow reaches by a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._at, self._path = place_of(store_url(url))

    def __str__(self) -> str:
        return self._url

    def names(self, within: str = "") -> list[str]:
        """See `Folder`."""
        asked = pyarrow.fs.FileSelector(f"{self._path}/{within}".rstrip("/"), allow_not_found=True)
        return sorted(found.base_name for found in self._at.get_file_info(asked))

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        with self._at.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def create_new(self, name: str, data: bytes) -> bool:
        """UsageError: pyarrow knows no put that is refused where something is."""
        raise UsageError(
            f"{self._url}/{name} cannot be made from here: a commit behind a URL is made through Spark. Write to it by a "
            "pipeline (waterclock run, Pipeline, write_once)"
        )

    def make(self, within: str = "") -> None:
        """See `Folder`."""
        self._at.create_dir(f"{self._path}/{within}".rstrip("/"), recursive=True)

    def remove(self, name: str) -> None:
        """See `Folder`."""
        with suppress(FileNotFoundError):
            self._at.delete_file(f"{self._path}/{name}")


class PlaceFolder:
    """A folder that Spark's Java reaches; `place` is one of spark/places."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def __str__(self) -> str:
        return str(self._place)

    def names(self, within: str = "") -> list[str]:
        """See `Folder`."""
        with suppress(FileNotFoundError):
            return sorted(entry.name for entry in self._in(within).entries())
        return []

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        return bytes(self._in(name).read_bytes())

    def create_new(self, name: str, data: bytes) -> bool:
        """See `Folder`."""
        return bool(self._in(name).create_new(data))

    def make(self, within: str = "") -> None:
        """See `Folder`."""
        self._in(within).make_folder()

    def remove(self, name: str) -> None:
        """See `Folder`."""
        self._in(name).unlink()

    def _in(self, name: str) -> Any:
        return self._place / name if name else self._place


def store_url(location: str) -> str:
    """A location in pyarrow's words, which knows S3 by one scheme.

    >>> store_url("s3a://lake/orders"), store_url("/lake/orders")
    ('s3://lake/orders', '/lake/orders')
    """
    return f"s3://{location.removeprefix('s3a://')}" if location.startswith("s3a://") else location


def folder_of(location: str) -> Folder:
    """The folder at a path or a URL, to read."""
    return StoreFolder(location) if "://" in location else LocalFolder(location)


def remove_folder(path: str) -> None:
    """Remove a folder; of a link to one only what is in it, for it was not made here."""
    if os.path.islink(path):
        for each in Path(path).iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    elif os.path.isdir(path):
        shutil.rmtree(path)


def path_of(location: str) -> str:
    """A location, which is a path where its URL is one of this machine's files.

    >>> path_of("file:///lake/a%20b"), path_of("s3a://lake/orders"), path_of("lake")
    ('/lake/a b', 's3a://lake/orders', 'lake')
    """
    return unquote(location.removeprefix("file://")) if location.startswith("file://") else location

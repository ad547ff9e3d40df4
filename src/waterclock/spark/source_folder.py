"""A folder of files as Spark sees it: which of them it reads, and what makes the folder unfit to be a source."""

from __future__ import annotations

import os
from pathlib import Path

from waterclock.errors import UsageError


def check_source(folder: Path) -> None:
    """Raise UsageError where the source's `folder` is not there, or something in it would be read wrongly or not at all."""
    check_readable(folder)
    if why := _why_unfit(folder):
        raise UsageError(f"the source folder {folder} {why}")


def check_readable(folder: Path) -> None:
    """Raise UsageError where the source's `folder` is not there, or this user may not read it."""
    if not folder.is_dir():
        raise UsageError(f"the source folder {folder} does not exist")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(
            f"the source folder {folder} cannot be read by this user: give it the rights to list and read it"
        )


def _why_unfit(folder: Path) -> str | None:
    """What keeps Spark from reading the folder as it is, and the way out."""
    if (folder / "_delta_log").is_dir():
        return (
            "is a table of Delta Lake: its files hold rows twice, and rows that are no more. Write the rows of the table "
            "to another folder, and read that"
        )
    if columns := [entry.name for entry in folder.iterdir() if "=" in entry.name and entry.is_dir()]:
        return (
            f"holds the folder {min(columns)!r}, and Spark takes what stands before the = for a column: name that folder "
            "in [source], or move the files up"
        )
    unseen = [path.name for path in files_in(folder) if not path.name.isprintable() and not _is_utf_8(path.name)]
    return (
        f"holds the file {min(unseen)!a}, whose name is not UTF-8: Spark does not see it. Rename it" if unseen else None
    )


def _is_utf_8(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:  # bytes that are no text stand in Python's names as halves of surrogate pairs
        return False


def files_in(folder: Path) -> list[Path]:
    """The files of a folder that Spark reads: it passes over names that begin with _ or a dot."""
    return [path for path in folder.iterdir() if not path.name.startswith(("_", ".")) and path.is_file()]


def count_files(folder: Path) -> int:
    """How many `files_in` has; asked after each batch, so it looks at no file by itself."""
    with os.scandir(folder) as entries:
        return sum(1 for entry in entries if not entry.name.startswith(("_", ".")) and entry.is_file())

"""Where the sources of a new checkpoint go on: the old one's offsets, under the new one's numbers and settings of state.

    offsets/0    the old one's last batch that is done, and commits/0: the state that was carried over is that after it
    offsets/1    only where the old one had begun a batch more: it is run again with the same offsets

A file of Spark's log is a version, a line of JSON, and in offsets/ a line for each source, which is its own affair.

Rule 1: what the sources say is copied as it stands, their own logs (sources/) with it; only what tells how state is stored
        is the new one's: Spark goes by that.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from waterclock.errors import UsageError
from waterclock.spark.checkpoint.folder import Checkpoint, write
from waterclock.streaming.places.place import Place, copy_folder, make_folder, remove

_VERSION = "v1"


def carry_offsets(old: Checkpoint, new: Checkpoint, done: int, begun: int) -> None:
    """Put the old one's offsets of batches `done` to `begun` in the place of what the query that wrote the state noted."""
    conf = settings_of(new.path / "offsets" / "0")["conf"]
    commit = _lines(new.path / "commits" / "0")[1]
    reached = {**json.loads(commit), **_reached(old, done)}
    logs = {str(n - done): _with(_lines(old.path / "offsets" / str(n)), conf) for n in range(done, begun + 1)}
    for folder in ("offsets", "commits", "sources"):
        with suppress(FileNotFoundError):
            remove(new.path / folder)
    if (old.path / "sources").is_dir():
        copy_folder(old.path / "sources", new.path / "sources")
    for folder in ("offsets", "commits"):
        make_folder(new.path / folder)
    for name, text in logs.items():
        write(new.path / "offsets" / name, text)
    write(new.path / "commits" / "0", f"{_VERSION}\n{json.dumps(reached)}")


def settings_of(offsets: Place) -> dict[str, Any]:
    """What Spark notes of a batch beside its offsets: watermark, moment, settings."""
    found: dict[str, Any] = json.loads(_lines(offsets)[1])
    return found


def _reached(old: Checkpoint, done: int) -> dict[str, Any]:
    """The watermark that follows batch `done`."""
    told = json.loads(_lines(old.path / "commits" / str(done))[1])
    return {name: told[name] for name in ("nextBatchWatermarkMs",) if name in told}


def _with(lines: list[str], conf: Any) -> str:
    return "\n".join([lines[0], json.dumps({**json.loads(lines[1]), "conf": conf}), *lines[2:]])


def _lines(file: Place) -> list[str]:
    lines = file.read_text().splitlines()
    if lines[0] != _VERSION:
        raise UsageError(
            f"{file} is of the version {lines[0]!r} of Spark's logs, and this waterclock carries over {_VERSION!r}: leave "
            "out the settings of [spark.conf] that ask for another one, or use the waterclock that goes with that Spark"
        )
    return lines

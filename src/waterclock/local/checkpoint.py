"""The checkpoint of a pipeline without Spark: a folder of this machine.

    waterclock.json    the settings, where the first batch begins, the query's id
    waterclock.sink    where the results are that go with it
    waterclock.state   the buckets (snapshots.py)
    waterclock.lock    who works on it (streaming/owner.py)

Rule 1: each engine refuses the other's.
Rule 2: `--fresh` removes what has one of these names, and nothing of a folder in which there is anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from waterclock.disk import write_whole
from waterclock.errors import StateMismatch, UsageError
from waterclock.local.record import Place
from waterclock.local.snapshots import NAME, Snapshots
from waterclock.local.sources import Source
from waterclock.streaming.owner import LOCK, owner_of
from waterclock.streaming.toml.config import SERVED

_OF_SPARK = (
    'the checkpoint {} is that of engine = "spark": name another checkpoint in [pipeline] and another table in [sink], or '
    "go on with that engine"
)
_NOTES = "waterclock.json"
_OURS = (NAME, f"{NAME}-wal", f"{NAME}-shm", SERVED, LOCK, _NOTES)  # the settings go last


class LocalCheckpoint:
    """A checkpoint; `take` comes first."""

    def __init__(self, path: Path) -> None:
        self.path, self._owner = path, owner_of(path)
        self._notes: dict[str, Any] = {}
        self._first: Any = {}
        self._identity: Any = {}
        self.is_another_source = False  # than the one that it was made for: a topic was made anew

    @property
    def query(self) -> str | None:
        """The id of its query; None if there is none yet."""
        return self._notes.get("query")

    def take(self, settings: Mapping[str, Any], sink: str, source: Source) -> None:
        """Have it for these settings, made if it is not there; UsageError or StateMismatch if it is another's."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the checkpoint {self.path} cannot be made: {error.strerror or error}. Name another folder as checkpoint "
                "in [pipeline], or clear the way"
            ) from error
        self._owner.take()
        file, served = self.path / _NOTES, self.path / SERVED
        if (self.path / "metadata").exists() or (self.path / "offsets").exists():
            raise StateMismatch(_OF_SPARK.format(self.path))
        if file.exists():
            self._notes = _read(file)
            before = self._notes.get("settings", {})
            changed = sorted(name for name in before.keys() | settings.keys() if before.get(name) != settings.get(name))
            if changed:
                raise StateMismatch(
                    f"the pipeline changed since the checkpoint {self.path} was made ({', '.join(changed)}): its state "
                    "would mean something else now. Undo the change, or start over with --fresh."
                )
        else:
            self._notes = {"engine": "local", "settings": dict(settings)}
        self._identity = dict(source.identity())
        self.is_another_source = self._notes.get("identity", self._identity) != self._identity
        if served.exists() and served.read_text() != sink:
            raise StateMismatch(
                f"the checkpoint {self.path} is that of the pipeline with {served.read_text()}, and this one has {sink}: "
                f'write checkpoint = "{self.path.name}-2" below [pipeline] in this one\'s file'
            )
        self._first = self._notes.get("first") or source.first()
        if not served.exists():
            write_whole(served, sink.encode())

    def snapshots(self) -> Snapshots:
        """The file of its buckets, opened."""
        return Snapshots(self.path / NAME)

    def begin(self, query: str) -> None:
        """Write down what must be the same from here on."""
        self._notes |= {"query": query, "first": self._first, "identity": self._identity}
        write_whole(self.path / _NOTES, json.dumps(self._notes, indent=1).encode())

    @property
    def first(self) -> Place:
        """Where the first batch begins: found out once, for "latest" is elsewhere after a crash."""
        return self._first  # type: ignore[no-any-return]

    def refuse_to_remove(self, sink: str) -> None:
        """Have it; UsageError if it is in use, holds other things, or goes with another sink than the one at `sink`."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UsageError(f"the checkpoint {self.path} is a file, so it is not removed: name a folder in [pipeline]")
        self._owner.take()
        strange = sorted(each.name for each in self.path.iterdir() if each.name not in _OURS)
        if strange:
            raise UsageError(
                f"the checkpoint {self.path} has other things in its folder ({strange[0]}, ...), so it is not removed: "
                "move them away, or name another folder as checkpoint in [pipeline]"
            )
        served = self.path / SERVED
        if served.exists() and served.read_text() != sink:
            raise UsageError(
                f"the checkpoint {self.path} is that of the pipeline with {served.read_text()}, so it is not removed: "
                f'write checkpoint = "{self.path.name}-2" below [pipeline] in this one\'s file, or remove it by hand'
            )

    def remove(self) -> None:
        """Remove its files, the settings last; the lock stays until it is let go."""
        if not self.path.exists():
            return
        for name in _OURS:
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # it is a link, or a disk is mounted there
            self.path.rmdir()

    def close(self) -> None:
        """Let it go."""
        self._owner.let_go()


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise StateMismatch(
            f"{file} is damaged ({error}): restore it, or remove the checkpoint: the state is made anew from the source"
        ) from None
    if found.get("engine") != "local":
        raise StateMismatch(_OF_SPARK.format(file.parent))
    return found  # type: ignore[no-any-return]

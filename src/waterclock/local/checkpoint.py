"""The checkpoint of a pipeline without Spark: a folder of this machine.

    waterclock.json    the settings, where the first batch begins, the query's id
    waterclock.sink    where the results are that go with it
    waterclock.state   the buckets (snapshots.py); those that were damaged lie beside it
    waterclock.lock    who works on it (streaming/owner.py)
    carried-over.json  which checkpoint took its place (streaming/checkpoint.py)

How it is removed, and whose it is: streaming/checkpoint.py.

Rule 1: each engine refuses the other's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import StateMismatch, UsageError
from waterclock.local.record import ENGINE, Clock, Place
from waterclock.local.snapshots import ASIDE, NAME, Snapshots, stored_in
from waterclock.local.sources import Source
from waterclock.rules.model import Rules
from waterclock.sinks import RecordingSink
from waterclock.streaming.checkpoint import (
    MARK,
    NOTES,
    OVER,
    Names,
    Removal,
    cannot_be_made,
    changed,
    has_changed,
    settings_of,
    stored,
    write,
)
from waterclock.streaming.owner import LOCK, owner_of
from waterclock.streaming.places.place import make_folder
from waterclock.streaming.state.bucket import StoredBucket
from waterclock.streaming.toml.config import SERVED

_OF_SPARK = (
    'the checkpoint {} is that of engine = "spark": carry its state over with waterclock state move PIPELINE.toml --engine '
    "local, or name another checkpoint in [pipeline] and another table in [sink], or go on with that engine"
)
_WRITTEN = {SERVED, NOTES, OVER, MARK}
_OURS = _WRITTEN | {f".{name}.new" for name in _WRITTEN} | {NAME, f"{NAME}-wal", f"{NAME}-shm", LOCK}
_NAMES = Names(lambda name: name in _OURS or name.startswith(ASIDE), frozenset({NOTES, SERVED, f".{SERVED}.new"}))


def is_local(checkpoint: Any) -> bool:
    """Whether there is a checkpoint of this engine; StateMismatch if it is damaged, so that nobody can say."""
    if not isinstance(checkpoint, Path) or not (checkpoint / NOTES).exists():
        return False
    return stored(checkpoint / NOTES).get("engine") == ENGINE


def look(checkpoint: Path) -> tuple[int, list[tuple[int, int, bytes, int]]]:
    """In how many buckets its state is kept, and those that hold something (`snapshots.stored_in`); UsageError if none
    does. Nothing is written, and the pipeline may run meanwhile."""
    found = stored_in(checkpoint / NAME) if (checkpoint / NAME).exists() else []
    if not found:
        raise UsageError(
            f"the checkpoint {checkpoint} holds no state of rules yet: name the folder of a pipeline's checkpoint, behind "
            "its first batch"
        )
    return int(stored(checkpoint / NOTES)["settings"]["buckets"]), found


def settings_with(source: Source, rules: Rules, delay_us: int, buckets: int) -> tuple[dict[str, Any], str]:
    """What the state depends on, and a digest of that."""
    settings = {"engine": ENGINE, **settings_of(source.settings(), rules, delay_us, buckets)}
    return settings, blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A pipeline that does not run: all that its sink has of it up to `batch_id` is in its buckets.

    `places` are those of the batches whose records are kept, the last one at the end; `clock` is the watermark of each
    partition; `shelf` gives the blobs of a bucket.
    """

    checkpoint: Path
    rules: Rules
    sink: RecordingSink
    schema: pa.Schema
    batch_id: int
    first: Place
    places: Sequence[Place]
    clock: Clock
    stored: Sequence[StoredBucket]
    shelf: Callable[[int], dict[int, bytes]]


class LocalCheckpoint:
    """A checkpoint; `take` comes first."""

    def __init__(self, path: Path, old: str | None = None) -> None:
        """If it is made out of the checkpoint `old`, it is begun anew: what a killed try left there says nothing."""
        self._old = old
        self.path, self._owner, self._removal = path, owner_of(path), Removal(path, _NAMES)
        self._snapshots: Snapshots | None = None
        self._notes: dict[str, Any] = {}
        self.first: Any = {}  # where the first batch begins: found out once, for "latest" is elsewhere after a crash
        self._identity: Any = {}
        self.is_another_source = False  # than the one that it was made for: a topic was made anew

    @property
    def query(self) -> str | None:
        """The id of its query; None if there is none yet."""
        return self._notes.get("query")

    def take(self, settings: Mapping[str, Any], sink: str, source: Source) -> None:
        """Have it for these settings, made if it is not there; UsageError or StateMismatch if it is another's."""
        self._owner.take()  # if it is there: nobody is removing it now
        self._removal.finish()
        try:
            make_folder(self.path)  # whose name outlasts a power cut
        except OSError as error:
            raise cannot_be_made(self.path, error) from error
        self._owner.take()
        if (self.path / "metadata").exists() or (self.path / "offsets").exists():
            raise StateMismatch(_OF_SPARK.format(self.path))
        self._notes = {"engine": ENGINE, "settings": dict(settings), "checkpoint": str(self.path)}
        if self._old is not None:
            self._notes["carried_from"] = self._old
            write(self.path / NOTES, json.dumps(self._notes, indent=1))
        elif (self.path / NOTES).exists():
            self._notes = _read(self.path / NOTES)
            if others := changed(self._notes.get("settings", {}), settings):
                raise has_changed(self.path, others)
        self._identity = dict(source.identity())
        self.is_another_source = self._notes.get("identity", self._identity) != self._identity
        served = self._removal.anothers(sink)
        if served is not None and not {*sink.split(" and ")} <= {*served.split(" and ")}:  # one may be left out
            raise StateMismatch(
                f"the checkpoint {self.path} is that of the pipeline with {served}, and this one has {sink}: "
                f'write checkpoint = "{self.path.name}-2" below [pipeline] in this one\'s file'
            )
        self.first = self._notes.get("first") or source.first()
        self._removal.serves(sink)

    def snapshots(self) -> Snapshots:
        """The file of its buckets, opened once."""
        self._snapshots = self._snapshots or Snapshots(self.path / NAME)
        return self._snapshots

    def begin(self, query: str, first: Place | None = None, identity: Mapping[str, str] | None = None) -> None:
        """Write down what must be the same from here on. `first`: of a state that comes from another checkpoint, where its
        first batch began; `identity`: the source's, if it is another one now."""
        self.first, self._identity = first or self.first, identity or self._identity
        self._notes |= {"query": query, "first": self.first, "identity": self._identity}
        write(self.path / NOTES, json.dumps(self._notes, indent=1))

    def refuse_to_remove(self, sinks: Sequence[str]) -> None:
        """Have it; UsageError if it is in use, holds other things, or goes with none of the `sinks`."""
        self._removal.refuse_other_things()
        self._owner.take()
        self._removal.refuse_anothers(sinks)

    def remove(self) -> None:
        """Remove its files; the lock stays until it is let go."""
        self._removal.run()

    def close(self) -> None:
        """Let it go."""
        if self._snapshots is not None:
            self._snapshots.close()
        self._owner.let_go()


def _read(file: Path) -> dict[str, Any]:
    found = stored(file)
    if found.get("engine") != ENGINE:
        raise StateMismatch(_OF_SPARK.format(file.parent))
    return found

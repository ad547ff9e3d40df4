"""What a checkpoint is, whichever engine keeps it: what may not change while it lives, whose results go with it, which one
took its place, and how it is removed.

    waterclock.json      the settings at its first start, and where it was made
    waterclock.sink      where the results are that go with it
    waterclock.removing  it is being removed; what else is in the folder counts no more
    carried-over.json    the one to which its state was carried over

Rule 1: who removes a checkpoint removes what has a name of one, and nothing from a folder in which there is anything else.
Rule 2: two pipelines with one checkpoint are told apart by their sinks; not where it was moved, for its sink may have been
        moved with it.
Rule 3: of two between which state is carried over the sink alone decides which one counts: the one whose query wrote its
        last batch. The file only says it in words. So a crash at any moment leaves one of them to be used, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.errors import StateMismatch, UsageError
from waterclock.rules.model import Rules
from waterclock.sinks import Batch, Sink, written_once
from waterclock.streaming.frames import DEAD_SCHEMA
from waterclock.streaming.owner import LOCK, OWNERS
from waterclock.streaming.places.place import Place, is_remote, names_in, place_of, remove, write_whole
from waterclock.streaming.state import bucket
from waterclock.streaming.toml.config import SERVED
from waterclock.streaming.toml.table import is_in, real

NOTES, MARK, OVER = "waterclock.json", "waterclock.removing", "carried-over.json"
_HEIRS = 20  # one that was put back from a copy may be its own
_BESIDE_IT = {"spark.log", LOCK, OWNERS}


# What may not change -------------------------------------------------------------------------------------------


def settings_of(source: Mapping[str, Any], rules: Rules | None, delay_us: int, buckets: int) -> dict[str, Any]:
    """What a checkpoint's state depends on; `source` is the source's part of it."""
    return {
        "state": bucket.VERSION,
        "buckets": buckets,
        "rules": repr(rules),
        "watermark_delay_us": delay_us,
        **source,
    }


def changed(before: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """The names of the settings that are others now. Columns that stand in another order are others: CSV is read by their
    order, and by it rows without an id are known."""
    both = before.keys() | settings.keys()
    return sorted(name for name in both if json.dumps(before.get(name)) != json.dumps(settings.get(name)))


def has_changed(path: Place, names: list[str]) -> StateMismatch:
    """The error of a pipeline that changed while its checkpoint lives."""
    return StateMismatch(
        f"the pipeline changed since the checkpoint {path} was made ({', '.join(names)}): its state would mean something "
        "else now. Undo the change, or start over with --fresh."
    )


def cannot_be_made(path: Place, error: OSError) -> UsageError:
    return UsageError(
        f"the checkpoint {path} cannot be made: {error.strerror or error}. Name another folder as checkpoint in "
        "[pipeline], or clear the way"
    )


def stored(file: Place) -> dict[str, Any]:
    """What a JSON file of the checkpoint holds."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(file, str(error)) from error
    if not isinstance(found, dict):
        raise damaged(file, f"it holds no JSON object but {type(found).__name__}")
    return found


def damaged(file: Place, why: str) -> StateMismatch:
    return StateMismatch(
        f"the checkpoint's file {file} is damaged: {why}. Restore the checkpoint and the sink from a copy of both, or "
        "start over with --fresh."
    )


def write(file: Place, text: str) -> None:
    """Write it whole or not at all; when it returns, it outlasts a crash of the machine too."""
    write_whole(file, text.encode())


def lies_where_it_was_made(path: Place) -> bool:
    """Whether it was neither moved nor copied, as far as it shows."""
    with suppress(StateMismatch):  # damaged, or not there
        return bool(stored(path / NOTES).get("checkpoint") == str(path))
    return False


def refuse_handed_over(checkpoint: Place, query_id: str | None) -> None:
    """Raise StateMismatch if the sink, whose last batch the query wrote, belongs to the one that took the place of this, or
    of that one, as far as they are on this machine."""
    place = checkpoint
    for _ in range(_HEIRS):
        if not (heir := heir_of(place)) or (place := place_of(heir["to"], Path("/"))) == checkpoint:
            return
        if query_id is not None and heir.get("query_id") == query_id:
            raise StateMismatch(
                f"the state of the checkpoint {checkpoint} was carried over to {place}, to which the sink "
                "belongs now: name that one as checkpoint, with the engine that it was carried to. The old one is of no "
                "more use, and may be removed"
            )
        if is_remote(place):
            return


def heir_of(checkpoint: Place) -> dict[str, Any]:
    """What `hand_over` wrote down; nothing if it did not."""
    return stored(checkpoint / OVER) if (checkpoint / OVER).exists() else {}


def hand_over(checkpoint: Place, new: Place, query_id: str | None) -> None:
    """Write down that `new`, with that query, is to take its place; again is the same."""
    write(checkpoint / OVER, json.dumps({"to": str(new), "query_id": query_id}) + "\n")


def give_sink(
    sink: Sink,
    schema: pa.Schema,
    query_id: str,
    number: int,
    offsets: str | None,
    grown: int,
    *,
    is_logged: bool = False,
) -> None:
    """Have the sink belong to that query: a batch of it without rows, in one transaction of the sink. It is the sink's
    `number`; the state is `grown` bytes larger."""
    counters, nothing = {"state_bytes": grown}, (schema.empty_table(), DEAD_SCHEMA.empty_table())
    written_once(sink, Batch(query_id, number, offsets, *nothing, counters, None, 0.0, is_logged=is_logged))


def refuse_in_each_other(old: Place, new: Place) -> None:
    """Raise UsageError for a new checkpoint that lies in the old one, or around it, or is it."""
    if is_in(real(new), real(old)) or is_in(real(old), real(new)):
        raise UsageError(f"the new checkpoint {new} and the old one lie in each other: name another folder (--to)")


# How it is removed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Names:
    """Which names in a folder are those of an engine's checkpoint, and `proofs`, one of which is in every one."""

    are_ours: Callable[[str], bool]
    proofs: frozenset[str]


class Removal:
    """The removal of a checkpoint. A mark in the folder goes last: what a kill in the midst leaves is no checkpoint."""

    def __init__(self, path: Place, names: Names) -> None:
        self._path, self._names = path, names
        self._mark, self._sink = path / MARK, path / SERVED

    def serves(self, sink: str) -> None:
        """Write down which sink's results go with the checkpoint; again is the same."""
        if self._served() != sink:
            write(self._sink, sink)

    def anothers(self, sink: str) -> str | None:
        """Where the results of the checkpoint are, if that is not `sink`: it is another pipeline's. Else None.

        None too if it was moved: its sink may have been moved with it.
        """
        served = self._served()
        return served if served != sink and lies_where_it_was_made(self._path) else None

    @contextmanager
    def explaining(self, sink: str) -> Iterator[None]:
        """What does not fit is another pipeline's, if the checkpoint goes with the results of another sink."""
        try:
            yield
        except StateMismatch as error:
            if (served := self.anothers(sink)) is None or {*served.split(" and ")} & {*sink.split(" and ")}:
                raise
            raise StateMismatch(
                f"the checkpoint {self._path} is that of the pipeline with {served}, and this one has {sink}. Each "
                f'pipeline needs a checkpoint of its own: write checkpoint = "{self._path.name}-2" below [pipeline] in '
                "this one's file, and run it again. Nothing was lost. If it is the same pipeline and its sink was changed: "
                "name the old sink again, or give it a new checkpoint too, and it reads everything again into the new sink"
            ) from error

    def refuse_anothers(self, sinks: Sequence[str]) -> None:
        """Raise UsageError if the checkpoint is another pipeline's: none of `sinks` is one of those that it goes with."""
        served = self.anothers(" and ".join(sinks))
        if served is not None and not any(f" and {sink} and " in f" and {served} and " for sink in sinks):
            raise UsageError(
                f"the checkpoint {self._path} is that of the pipeline with {served}, so it is not removed: write "
                f'checkpoint = "{self._path.name}-2" below [pipeline] in this one\'s file, or remove it by hand if this '
                "pipeline takes the place of that one"
            )

    def refuse_other_things(self) -> None:
        """Raise UsageError if the path is a file, or a folder that holds other things than a checkpoint's."""
        if not self._path.exists():
            return
        if not self._path.is_dir():
            raise UsageError(
                f"the checkpoint {self._path} is a file, so it is not removed: name a folder in [pipeline]"
            )
        names = set(names_in(self._path))
        if names - _BESIDE_IT and not names & {*self._names.proofs, MARK}:
            raise UsageError(
                f"the folder {self._path} holds other things ({min(names)}, ...) and no checkpoint, so it is not "
                "removed: name another folder as checkpoint in [pipeline]"
            )
        if others := self._others():
            raise UsageError(
                f"the checkpoint {self._path} has other things in its folder ({others[0]}, ...), so it is not removed: "
                "move them away, or name another folder as checkpoint in [pipeline]"
            )

    def run(self) -> None:
        """Remove the checkpoint that is in the folder, and the folder if that can be; UsageError if some of it stays.

        A link, or the place where a disk is mounted, stays, and so does what has no name of a checkpoint's.
        """
        try:
            if self._path.exists():
                write(self._mark, "")
                kept = {MARK, OWNERS, *self._others()}
                for name in [name for name in names_in(self._path) if name not in kept]:
                    remove(self._path / name)
                remove(self._mark)
        except OSError as error:
            raise UsageError(
                f"the checkpoint {self._path} cannot be removed: {error.strerror or error}. The sink's tables are gone "
                "already, so remove it by hand"
            ) from error
        if isinstance(self._path, Path):
            with suppress(OSError):
                self._path.rmdir()

    def finish(self) -> None:
        """Remove the rest if a removal was killed: Spark would take the files named in it for read."""
        if self._mark.exists():
            self.run()

    def _served(self) -> str | None:
        if not self._sink.exists():
            return None
        try:
            served = self._sink.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(str(error)) from error
        if not served or not served.isprintable():
            raise self._unreadable("it names no sink")
        return served

    def _unreadable(self, why: str) -> StateMismatch:
        return StateMismatch(
            f"the checkpoint's file {self._sink} is damaged: {why}. It says which sink's results go with the "
            "checkpoint, and no more: if that is this pipeline's, remove the file, and the next start makes it anew. Till "
            "then --fresh removes nothing: the checkpoint may be another pipeline's"
        )

    def _others(self) -> list[str]:
        return sorted(name for name in names_in(self._path) if not self._names.are_ours(name))

"""What waterclock reads from, and adds to, a Spark checkpoint folder; what has another name there is somebody else's.

metadata            Spark's: the query's id
offsets/N           Spark's: what batch N reads
commits/N           Spark's: batch N is done
sources/0           Spark's: the files that were taken, if the source is a folder (source_files.py)
state/0             Spark's: what executors keep of the state (state_files.py)
waterclock.json     ours: the settings that must not change while the checkpoint lives
starting.json       ours: where the first batch of topics begins, for Spark writes down only where a batch ends
closed-at.json      ours: up to where the source was read when the closing heartbeat was added
source-closed       ours: the watermark has passed everything, in a batch that is done; there is nothing to wait for
waterclock.sink     ours: where the results are that go with it (fresh.py)
waterclock.lock     ours: who works on the checkpoint (streaming/owner.py)
waterclock.owners/  ours: the same behind a URI, where there are no locks (streaming/owner.py)
waterclock.reads/   ours: what each batch read, where Spark's notes of it may be written over (reads.py)
waterclock.beside   ours: the sink may lack the last batch that is done (taken_back.py)
waterclock.unplanned/ ours: notes of files that no batch took, set aside (reads.py)
waterclock.removing ours: the folder is being removed; what else is in it counts no more (fresh.py)
heartbeats/         ours: a second source beside the files; a closing heartbeat is a file in it

Rule 1: who removes a checkpoint, or what was begun of one, removes what has one of these names, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waterclock.errors import StateMismatch, UsageError
from waterclock.spark.checkpoint.source_files import files_of_entry, is_unchanged, taken_files
from waterclock.streaming.checkpoint import NOTES, cannot_be_made, changed, damaged, has_changed, stored, write
from waterclock.streaming.files.folder import written_in
from waterclock.streaming.layout import CLOSING, came_after_the_close
from waterclock.streaming.places.place import Place, make_folder, names_in, place_of, remove, written_ms
from waterclock.wording import counted

_SPARK = ("metadata", "offsets", "commits", "sources", "state", "spark.log")
_NOTES = (
    "starting.json",
    "closed-at.json",
    "source-closed",
    "inferred.json",
    "carried.json",
    "carried-over.json",
    "heartbeats",
)
_OURS = "waterclock."  # what begins with this, too


def is_of_a_checkpoint(name: str) -> bool:
    """Whether a name is one of these, or that of a file on its way to one, or of Java's sum of one.

    >>> [is_of_a_checkpoint(name) for name in ("offsets", ".metadata.crc", NOTES, "notes.txt")]
    [True, True, True, False]
    """
    plain = name.lstrip(".")
    if plain.startswith(_OURS) or name in (*_SPARK, *_NOTES):
        return True
    return plain != name and any(plain.startswith(f"{each}.") for each in (*_SPARK, *_NOTES))


def others_in(folder: Place) -> list[str]:
    """The names in a folder that are none of a checkpoint's."""
    return sorted(name for name in names_in(folder) if not is_of_a_checkpoint(name))


_STARTING, _SOURCE_CLOSED, _CLOSED_AT = "starting.json", "source-closed", "closed-at.json"
_CHANGED = {  # a setting that changed while the checkpoint lives, from `old` to `new`
    "state": (
        "the checkpoint {path} was written by another version of waterclock: its state has version {old}, this waterclock "
        "reads {new}. Use the version that wrote it, or start over with --fresh."
    ),
    "path": (
        "the source was the folder {old} when the checkpoint {path} was made, and is {new} now: Spark knows the files that "
        "it has read by their paths, and would read them again. Name the old path in [source], where a link to the new one "
        "will do, or start over with --fresh."
    ),
    "buckets": (
        "the checkpoint {path} keeps its state in {old} buckets, and {new} are asked for: keys would not find their state. "
        "Leave 'buckets' out, or say {old}; to have {new}, carry the state into a new checkpoint with waterclock state "
        "rescale PIPELINE.toml --buckets {new}."
    ),
}


def logged(file: Place) -> tuple[str, dict[str, Any], list[str]]:
    """A file of Spark's log of batches: version, what it says (of offsets: watermark, moment, settings), a line for each
    source. StateMismatch if it is damaged."""
    try:
        version, noted, *sources = file.read_text().splitlines()
        return version, json.loads(noted), sources
    except ValueError as error:
        raise damaged(file, str(error)) from error


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder; it need not exist yet."""

    path: Place

    @property
    def local(self) -> Path:
        """Its folder on this machine; UsageError if it lies behind a URI."""
        if isinstance(self.path, Path):
            return self.path
        raise UsageError(
            f"the checkpoint {self.path} lies behind a URI: this is done with a folder of this machine only"
        )

    @property
    def heartbeats(self) -> Place:
        return self.path / "heartbeats"

    def query_id(self) -> str | None:
        """The id of the query that the checkpoint belongs to; None if there is none yet."""
        file = self.path / "metadata"
        if not file.exists():
            return None
        query_id = stored(file).get("id")
        if not isinstance(query_id, str):
            raise damaged(file, "it has no id")
        return query_id

    def last_batch(self) -> int | None:
        """The last batch whose offsets were written."""
        return self._last("offsets")

    def last_done(self) -> int | None:
        """The last batch that Spark noted as done; the sink may lack it where a mark says so (taken_back.py)."""
        return self._last("commits")

    def _last(self, folder: str) -> int | None:
        return max((int(name) for name in names_in(self.path / folder) if name.isdecimal()), default=None)

    def offsets(self, batch_id: int) -> str | None:
        """What batch `batch_id` read, in Spark's words."""
        with suppress(FileNotFoundError):
            return (self.path / "offsets" / str(batch_id)).read_text()
        return None

    def source_offsets(self) -> dict[str, Any]:
        """Up to where the last batch read the pipeline's own source, as that keeps it; empty if there is none.

        Behind a version and the batch's settings, Spark writes a line for each source, the pipeline's own first.
        """
        last = self.last_batch()
        return {} if last is None else self._source_offsets(last)

    def _source_offsets(self, batch_id: int) -> dict[str, Any]:
        lines = (self.offsets(batch_id) or "").splitlines()
        try:
            found = json.loads(lines[2]) if len(lines) > 2 and lines[2] != "-" else {}
        except ValueError as error:
            raise damaged(self.path / "offsets" / str(batch_id), str(error)) from error
        return found if isinstance(found, dict) else {}

    def files_of(self, batch_id: int) -> list[str]:
        """The names of the files that batch `batch_id` takes of a folder."""
        before, last = (self._source_offsets(n).get("logOffset", -1) for n in (batch_id - 1, batch_id))
        return [file.name for entry in range(before + 1, last + 1) for file in files_of_entry(self._taken, entry)]

    def starting(self) -> dict[str, Any] | None:
        """Where the first batch begins, as `begin_at` wrote it down; None if it did not yet."""
        return stored(self.path / _STARTING) if (self.path / _STARTING).exists() else None

    def begin_at(self, starting: Mapping[str, Any]) -> None:
        """Write down where the first batch begins: run again after a crash, it must read the same."""
        write(self.path / _STARTING, json.dumps(starting) + "\n")

    def source_closes(self) -> None:
        """Write down that the batch that is done was the last one; again is the same."""
        write(self.path / _SOURCE_CLOSED, "")

    def is_source_closed(self) -> bool:
        return (self.path / _SOURCE_CLOSED).exists()

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Write down `settings` at the first start; StateMismatch if a later start has others."""
        file = self.path / NOTES
        try:
            make_folder(self.heartbeats)
        except OSError as error:
            raise cannot_be_made(self.path, error) from error
        if not file.exists():
            write(file, json.dumps({**settings, "checkpoint": str(self.path)}, indent=1))
        self.refuse_others(settings)

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """Raise StateMismatch if the checkpoint was made with other settings, or the end of Spark's logs is damaged, of
        which Spark would not say what helps; nothing is written."""
        for folder in ("offsets", "commits"):
            if (
                isinstance(self.path, Path) and (last := self._last(folder)) is not None
            ):  # stores of URIs have whole files
                logged(self.path / folder / str(last))
        file = self.path / NOTES
        if not file.exists():
            return
        before = stored(file)
        made = before.pop("checkpoint", None)
        if made is not None and not place_of(made, Path("/")).exists():
            raise StateMismatch(
                f"the checkpoint {self.path} was made as {made}, and nothing is there now: Spark keeps that path in it. "
                "Move it back, or leave a link to it there, or start over with --fresh."
            )
        others = changed(before, settings)
        known = "state" if "state" in others else "".join(others)
        if known in _CHANGED and (known != "path" or "path" in before):
            old, new = before.get(known), settings.get(known)
            raise StateMismatch(_CHANGED[known].format(path=self.path, old=old, new=new))
        if others:
            raise has_changed(self.path, others)

    def refuse_another_engine(self) -> None:
        """StateMismatch if it was made without Spark; nothing is written."""
        file = self.path / "waterclock.json"
        if file.exists() and stored(file).get("engine") is not None:
            raise StateMismatch(
                f'the checkpoint {self.path} is that of engine = "local": carry its state over with waterclock state move '
                "PIPELINE.toml --engine spark, or name another checkpoint in [pipeline] and another table in [sink], or go "
                "on with that engine"
            )

    def buckets(self) -> int | None:
        """In how many buckets the state is kept; None if there is none yet, or if that is several operators'."""
        file = self.path / NOTES
        kept = stored(file).get("buckets") if file.exists() else None
        return kept if isinstance(kept, int) else None

    def refuse_without_state(self) -> None:
        """Raise UsageError if no batch of rules is done, so that there is no state to look at or to carry over;
        StateMismatch if it is another engine's."""
        self.refuse_another_engine()
        if self.buckets() is None or self.last_done() is None:
            raise UsageError(
                f"the checkpoint {self.path} holds no state of rules yet: name the folder of a pipeline's checkpoint, "
                "behind its first batch"
            )

    def sweep(self) -> None:
        """Remove what a kill left of writing the very first offsets: Spark starts batch 0 in empty folders only."""
        if self.last_batch() is None:
            for folder in (self.path / "offsets", self.path / "commits"):
                for half in filter(lambda name: name.startswith("."), names_in(folder)):
                    remove(folder / half)

    def close(self) -> None:
        """Add the closing heartbeat, and write down before it how far the source was read; again is the same."""
        if not self.is_closed():
            write(self.path / _CLOSED_AT, json.dumps(self.source_offsets()) + "\n")
            self._beat(self._closing)

    def closed_at(self) -> dict[str, Any]:
        """Up to where the source was read when it was closed, as that keeps it: batches of the close may lie behind."""
        return stored(self.path / _CLOSED_AT) if (self.path / _CLOSED_AT).exists() else self.source_offsets()

    def close_again(self) -> None:
        """Add one more closing heartbeat if the batch that ends everything is not done.

        That batch comes behind the heartbeat's own and has no input. A Spark that was killed between the two does not
        make up for it by itself: only something new to read lets it make another batch.
        """
        if self.is_closed() and not self.is_source_closed():
            count = sum(1 for name in names_in(self.heartbeats) if name.endswith(".jsonl"))
            self._beat(self.heartbeats / f"closing-{count}.jsonl")

    def _beat(self, file: Place) -> None:
        write(file, json.dumps({"closing": CLOSING}) + "\n")

    def is_closed(self) -> bool:
        return self._closing.exists()

    @property
    def _closing(self) -> Place:
        return self.heartbeats / "closing.jsonl"

    def refuse_if_closed(self, source: Place) -> None:
        """Raise UsageError if files came after the closing heartbeat: all of them would be late.

        A file that is moved in keeps the time of its content; when it came follows from the time of its last change
        of any kind. Clocks are set back, and a checkpoint that is copied has the times of its copy: so what Spark has not
        taken, or not as it stands there now, came after the close too. Names that Spark does not read do not count.
        """
        if not self.is_closed():
            return
        closing, taken = self._closing, {file.name: file for file in taken_files(self._taken)}
        closed_ns = closing.stat().st_mtime_ns if isinstance(closing, Path) else written_ms(closing) * 1_000_000
        found = written_in(source)
        late = [name for name, ms, ns in found if ns >= closed_ns or not is_unchanged(name, ms, taken)]
        if late:
            more = ", ..." if len(late) > 1 else ""
            raise came_after_the_close(counted(len(late), "file"), f"{min(late)}{more}")

    @property
    def _taken(self) -> Place:
        return self.path / "sources" / "0"

    def refuse_unusable(self) -> None:
        """Raise UsageError if the folder, or something in it, is another user's and may not be read and written.

        Elsewhere than on this machine only trying shows it.
        """
        if not isinstance(self.path, Path):
            return
        try:
            parts = [self.path, *self.path.iterdir()] if self.path.is_dir() else []
            foreign = next((part for part in parts if not os.access(part, os.R_OK | os.W_OK)), None)
        except PermissionError:
            foreign = self.path
        if foreign is not None:
            raise UsageError(
                f"the checkpoint {self.path} cannot be used by this user, who may not read and write {foreign}: run the "
                "pipeline as the user who made it, or give that one's rights"
            )

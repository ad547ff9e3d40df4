"""What waterclock reads from, and adds to, a Spark checkpoint folder.

metadata            Spark's: the query's id
offsets/N           Spark's: what batch N reads
commits/N           Spark's: batch N is done
sources/0           Spark's: the files that were taken, where the source is a folder (taken.py)
waterclock.json     ours: the settings that must not change while the checkpoint lives
starting.json       ours: where the first batch of topics begins, for Spark writes down only where a batch ends
closed-at.json      ours: up to where the source was read when the closing heartbeat was added
source-closed       ours: the watermark has passed everything, in a batch that is done; there is nothing to wait for
waterclock.sink     ours: where the results are that go with it (fresh.py)
waterclock.lock     ours: who works on the checkpoint (owner.py)
waterclock.owners/  ours: the same behind a URI, where there are no locks (lease.py)
waterclock.reads/   ours: what each batch read, where Spark's notes of it may be written over (reads.py)
waterclock.unplanned/ ours: notes of files that no batch took, set aside (unplanned.py)
waterclock.removing ours: the folder is being removed; what else is in it counts no more (fresh.py)
heartbeats/         ours: a second source beside the files; a closing heartbeat is a file in it
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
from waterclock.spark.checkpoint.taken import files_of_entry, is_unchanged, taken_files
from waterclock.spark.source_folder import written_in
from waterclock.streaming.layout import CLOSING
from waterclock.streaming.places.place import Place, make_folder, names_in, place_of, remove, write_whole, written_ms


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder; it need not exist yet."""

    path: Place

    @property
    def local(self) -> Path:
        """Its folder on this machine; UsageError where it lies behind a URI."""
        if isinstance(self.path, Path):
            return self.path
        raise UsageError(
            f"the checkpoint {self.path} lies behind a URI: this is done with a folder of this machine only"
        )

    @property
    def heartbeats(self) -> Place:
        return self.path / "heartbeats"

    def query_id(self) -> str | None:
        """The id of the query that the checkpoint belongs to; None where there is none yet."""
        file = self.path / "metadata"
        if not file.exists():
            return None
        query_id = stored(file).get("id")
        if not isinstance(query_id, str):
            raise _damaged(file, "it has no id")
        return query_id

    def last_batch(self) -> int | None:
        """The last batch whose offsets were written."""
        return self._last("offsets")

    def last_done(self) -> int | None:
        """The last batch that Spark noted as done; it is in the sink, then."""
        return self._last("commits")

    def _last(self, folder: str) -> int | None:
        return max((int(name) for name in names_in(self.path / folder) if name.isdecimal()), default=None)

    def offsets(self, batch_id: int) -> str | None:
        """What batch `batch_id` read, in Spark's words."""
        with suppress(FileNotFoundError):
            return (self.path / "offsets" / str(batch_id)).read_text()
        return None

    def source_offsets(self) -> dict[str, Any]:
        """Up to where the last batch read the pipeline's own source, as that keeps it; empty where there is none.

        Behind a version and the batch's settings, Spark writes a line for each source, the pipeline's own first.
        """
        last = self.last_batch()
        return {} if last is None else self._source_offsets(last)

    def _source_offsets(self, batch_id: int) -> dict[str, Any]:
        lines = (self.offsets(batch_id) or "").splitlines()
        try:
            found = json.loads(lines[2]) if len(lines) > 2 and lines[2] != "-" else {}
        except ValueError as error:
            raise _damaged(self.path / "offsets" / str(batch_id), str(error)) from error
        return found if isinstance(found, dict) else {}

    def files_of(self, batch_id: int) -> list[str]:
        """The names of the files that batch `batch_id` takes of a folder."""
        before, last = (self._source_offsets(n).get("logOffset", -1) for n in (batch_id - 1, batch_id))
        return [file.name for entry in range(before + 1, last + 1) for file in files_of_entry(self._taken, entry)]

    def starting(self) -> dict[str, Any] | None:
        """Where the first batch begins, as `begin_at` wrote it down; None where it did not yet."""
        return stored(self._starting) if self._starting.exists() else None

    def begin_at(self, starting: Mapping[str, Any]) -> None:
        """Write down where the first batch begins: run again after a crash, it must read the same."""
        write(self._starting, json.dumps(starting) + "\n")

    @property
    def _starting(self) -> Place:
        return self.path / "starting.json"

    def source_closes(self) -> None:
        """Write down that the batch that is done was the last one; again is the same."""
        write(self._source_closed, "")

    def is_source_closed(self) -> bool:
        return self._source_closed.exists()

    @property
    def _source_closed(self) -> Place:
        return self.path / "source-closed"

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Write down `settings` at the first start; StateMismatch where a later start has others."""
        file = self.path / "waterclock.json"
        try:
            make_folder(self.heartbeats)
        except OSError as error:
            raise UsageError(
                f"the checkpoint {self.path} cannot be made: {error.strerror or error}. Name another folder as checkpoint "
                "in [pipeline], or clear the way"
            ) from error
        if not file.exists():
            write(file, json.dumps({**settings, "checkpoint": str(self.path)}, indent=1))
        self.refuse_others(settings)

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """Raise StateMismatch where the checkpoint was made with other settings; nothing is written."""
        file = self.path / "waterclock.json"
        if not file.exists():
            return
        before = stored(file)
        self._refuse_moved(before.pop("checkpoint", None))
        changed = sorted(name for name in before.keys() | settings.keys() if before.get(name) != settings.get(name))
        if "state" in changed:
            raise self._of_another_version(before.get("state"), settings.get("state"))
        if changed == ["path"] and "path" in before:
            raise self._of_another_folder(before.get("path"), settings.get("path"))
        if changed == ["buckets"]:
            raise self._of_other_buckets(before.get("buckets"), settings.get("buckets"))
        if changed:
            raise StateMismatch(
                f"the pipeline changed since the checkpoint {self.path} was made ({', '.join(changed)}): its state "
                "would mean something else now. Undo the change, or start over with --fresh."
            )

    def buckets(self) -> int | None:
        """In how many buckets the state is kept; None where there is none yet, or where that is several operators'."""
        file = self.path / "waterclock.json"
        kept = stored(file).get("buckets") if file.exists() else None
        return kept if isinstance(kept, int) else None

    def refuse_without_state(self) -> None:
        """Raise UsageError where no batch of rules is done, so that there is no state to look at or to carry over."""
        if self.buckets() is None or self.last_done() is None:
            raise UsageError(
                f"the checkpoint {self.path} holds no state of rules yet: name the folder of a pipeline's checkpoint, "
                "behind its first batch"
            )

    def lies_where_it_was_made(self) -> bool:
        """Whether it was neither moved nor copied, as far as it shows."""
        with suppress(StateMismatch):  # damaged, or not there
            return bool(stored(self.path / "waterclock.json").get("checkpoint") == str(self.path))
        return False

    def _of_another_version(self, written: Any, read: Any) -> StateMismatch:
        return StateMismatch(
            f"the checkpoint {self.path} was written by another version of waterclock: its state has version {written}, "
            f"this waterclock reads {read}. Use the version that wrote it, or start over with --fresh."
        )

    def _of_other_buckets(self, kept: Any, asked: Any) -> StateMismatch:
        return StateMismatch(
            f"the checkpoint {self.path} keeps its state in {kept} buckets, and {asked} are asked for: keys would not find "
            f"their state. Leave 'buckets' out, or say {kept}; to have {asked}, carry the state into a new checkpoint with "
            f"waterclock state rescale PIPELINE.toml --buckets {asked}."
        )

    def _of_another_folder(self, read: Any, named: Any) -> StateMismatch:
        return StateMismatch(
            f"the source was the folder {read} when the checkpoint {self.path} was made, and is {named} now: Spark knows "
            "the files that it has read by their paths, and would read them again. Name the old path in [source], where a "
            "link to the new one will do, or start over with --fresh."
        )

    def _refuse_moved(self, made: Any) -> None:
        if made is not None and not place_of(made, Path("/")).exists():
            raise StateMismatch(
                f"the checkpoint {self.path} was made as {made}, and nothing is there now: Spark keeps that path in it. "
                "Move it back, or leave a link to it there, or start over with --fresh."
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
            write(self._closed_at, json.dumps(self.source_offsets()) + "\n")
            self._beat(self._closing)

    def closed_at(self) -> dict[str, Any]:
        """Up to where the source was read when it was closed, as that keeps it: batches of the close may lie behind."""
        return stored(self._closed_at) if self._closed_at.exists() else self.source_offsets()

    @property
    def _closed_at(self) -> Place:
        return self.path / "closed-at.json"

    def close_again(self) -> None:
        """Add one more closing heartbeat where the batch that ends everything is not done.

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
        """Raise UsageError where files came after the closing heartbeat: all of them would be late.

        A file that is moved in keeps the time of its content; when it came follows from the time of its last change
        of any kind. Clocks are set back, and a checkpoint that is copied has the times of its copy: so what Spark has not
        taken, or not as it stands there now, came after the close too. Names that Spark does not read do not count.
        """
        if not self.is_closed():
            return
        closed_ns, taken = _written_ns(self._closing), {file.name: file for file in taken_files(self._taken)}
        found = written_in(source)
        late = [name for name, ms, ns in found if ns >= closed_ns or not is_unchanged(name, ms, taken)]
        if late:
            count, more = ("1 file", "") if len(late) == 1 else (f"{len(late)} files", ", ...")
            raise UsageError(
                f"the pipeline was closed, and {count} came after that ({min(late)}{more}): nothing in them would be "
                "in time. Start over with --fresh; and for input that goes on, set close = false under [time]."
            )

    @property
    def _taken(self) -> Place:
        return self.path / "sources" / "0"

    def refuse_unusable(self) -> None:
        """Raise UsageError where the folder, or something in it, is another user's and may not be read and written.

        Elsewhere than on this machine only trying tells.
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


def _written_ns(file: Place) -> int:
    return file.stat().st_mtime_ns if isinstance(file, Path) else written_ms(file) * 1_000_000


def stored(file: Place) -> dict[str, Any]:
    """What a JSON file of the checkpoint holds."""
    try:
        stored = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from error
    if not isinstance(stored, dict):
        raise _damaged(file, f"it holds no JSON object but {type(stored).__name__}")
    return stored


def _damaged(file: Place, why: str) -> StateMismatch:
    return StateMismatch(
        f"the checkpoint's file {file} is damaged: {why}. Restore the checkpoint and the sink from a copy of both, or "
        "start over with --fresh."
    )


def write(file: Place, text: str) -> None:
    """Write it whole or not at all; when it returns, it outlasts a crash of the machine too."""
    write_whole(file, text.encode())

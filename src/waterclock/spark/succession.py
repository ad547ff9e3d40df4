"""A run that goes on with another checkpoint, into which its state is carried beside it (rescaling/live.py has the steps).

The run and the command that carries speak by two files in the run's checkpoint, each written by one of them:

    waterclock.asked       by the command: which one, its version, the new folder, and "record" or "halt"
    waterclock.answered    by the run: "recording" since a batch, "halted" behind one, "switched", or why it goes on alone

Rule 1: the run alone hands its sink over. Until then it can go on with its old checkpoint at any moment, and does so when
        the command is gone, takes too long, or cannot be served; the command learns of it.
Rule 2: the run halts where a batch begins, or while none is under way: nothing that was worked out is thrown away.
Rule 3: the run has halted when its sink has all that Spark notes as done: a batch is written beside the next one
        (batch/beside.py), and the new checkpoint would not read again what the sink lacks.
Rule 4: the command has the new folder's lock while it is at work. Once that is free, the old folder says whether the new
        one is to take its place (checkpoint/state_files.py), or the command is gone.
Rule 5: what a killed run or command left asked counts no more at the next start; a warning says so.
Rule 6: the command is of the run's version, machine and user: the run reads what it wrote, and goes on in its folder.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from waterclock.clock import Clock
from waterclock.errors import StateMismatch, WaterclockError
from waterclock.sinks import Batch
from waterclock.spark.batch.batches import spark_ms
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.state_files import is_carried_over
from waterclock.spark.packing.recording import FLAG, BatchNote, note
from waterclock.streaming import frames
from waterclock.streaming.checkpoint import stored, write
from waterclock.streaming.owner import LOCK, is_free

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)
ASKED, ANSWERED = "waterclock.asked", "waterclock.answered"
RECORD, HALT = "record", "halt"
RECORDING, HALTED, SWITCHED, ALONE = "recording", "halted", "switched", "alone"
PATIENCE_S = 60.0  # a halted run waits so long for the command
_LOOK_EVERY_S = 0.05


class Halt(Exception):
    """The end of a query whose run waits for another checkpoint."""


def release() -> str:
    """This waterclock's version; nothing where it was sent along and is not installed."""
    with suppress(PackageNotFoundError):
        return version("waterclock")
    return ""


def said(file: Path) -> dict[str, Any]:
    """What one of the two files says; nothing if it is not there, or was taken away meanwhile: no run ends by it."""
    with suppress(StateMismatch):
        return stored(file)
    return {}


class Succession:
    """A run's side of it, for one checkpoint. Nothing is ever asked of a checkpoint behind a URI."""

    def __init__(self, checkpoint: Checkpoint, clock: Clock, check: Callable[[], object]) -> None:
        """`check` raises UsageError if the run's state cannot be carried over."""
        self._folder = checkpoint.path if isinstance(checkpoint.path, Path) else None
        self._checkpoint, self._clock, self._check = checkpoint, clock, check
        self._ask: dict[str, Any] = {}
        self._master = "local"
        self._first: int | None = None  # the first batch that was recorded
        self._given_up = ""
        self._lock, self._begun, self._written = RLock(), -1, -1
        self.halts = False

    @property
    def flag(self) -> str | None:
        """The path of the flag that starts the recording (packing/recording.py)."""
        return None if self._folder is None else str(self._folder / FLAG)

    def begin(self, master: str) -> None:
        """A run starts on Spark's `master`. Rule 5."""
        self._master = master
        if self._folder is not None and (self._folder / ASKED).exists():
            log.warning(
                "a run of the checkpoint %s was asked to go on with %s, and ended before: give the command again",
                self._folder, said(self._folder / ASKED).get("to"),
            )  # fmt: skip
        self._forget()

    def look(self, query: StreamingQuery) -> None:
        """See what is asked, again and again while the query runs; a query that works on nothing is stopped to halt."""
        if self._folder is None:
            return
        if self.halts:
            if not query.status["isTriggerActive"]:
                query.stop()
            return
        with self._lock:
            self._see(said(self._folder / ASKED))

    def _see(self, asked: dict[str, Any]) -> None:
        is_new = bool(asked) and asked["id"] != self._ask.get("id")
        if is_new:
            self._ask, self._first = asked, None
        if not self._ask:
            return
        why = self._refusal() if is_new else self._why_alone(asked, is_free(Path(self._ask["to"])))
        if why:
            self._go_on_alone(why)
        elif asked["step"] == HALT and self._first is not None:
            self.halts = True
        elif self._begun <= self._written:
            done = self._checkpoint.last_done()
            self._record(max(self._written, -1 if done is None else done) + 1)

    def batch_begins(self, batch_id: int) -> None:
        """Nothing of batch `batch_id` is worked out yet; Halt if it is not to be, by this run."""
        if self.halts:
            raise Halt
        with self._lock:
            self._begun = batch_id
            self._record(batch_id)

    def _record(self, first: int) -> None:
        """Have batches from `first` on written down, if that is asked and not done yet."""
        if self._ask and self._first is None and self._folder is not None:
            write(self._folder / FLAG, str(Path(self._ask["records"])))
            self._first = first
            self._answer(RECORDING, first=first)

    def batch_is_written(self, batch_id: int, batch: Batch, taken: Iterable[pa.Table]) -> None:
        """Spark's batch `batch_id` is in the sink: `batch`, made of the frames `taken`."""
        with self._lock:
            self._written = batch_id
            if self._first is None or batch_id < self._first or self._given_up:
                return
            lacks = next((why for frame in taken if (why := frames.note(frame, "unrecorded"))), None)
            aside = ({"results": frames.note(frame, "put_aside") or 0} for frame in taken)  # the buckets made them
            try:
                if lacks is None:
                    noted = BatchNote(spark_ms(batch.offsets), frames.sum_counters([batch.counters, *aside]))
                    note(Path(self._ask["records"]), batch_id, noted)
            except OSError as error:
                lacks = f"{error.filename}: {error.strerror or error}"
            if lacks:
                self._given_up = f"what the run was given could not be written down beside it ({lacks})"

    def wait(self, stopped: Callable[[], bool]) -> Checkpoint | None:
        """The query has halted: the checkpoint to go on with, or None if the run is to go on alone. Rule 4."""
        assert self._folder is not None
        self._answer(HALTED, done=self._checkpoint.last_done())
        new, why, until = Checkpoint(Path(self._ask["to"])), "", self._clock.monotonic_s() + PATIENCE_S
        while not why:
            is_let_go = is_free(new.path)
            if is_let_go and not self._given_up and is_carried_over(self._checkpoint, new):
                return new
            why = "the run was stopped" if stopped() else self._why_alone(said(self._folder / ASKED), is_let_go)
            if self._clock.monotonic_s() > until:
                why = why or f"the command took more than {PATIENCE_S:.0f} s"
            self._clock.sleep_s(_LOOK_EVERY_S)
        self._go_on_alone(why)
        return None

    def switched(self) -> None:
        """The sink belongs to the new checkpoint."""
        log.warning(
            "the run goes on with the checkpoint %s: name it in the pipeline's file, the old one is refused from now on",
            self._ask["to"],
        )
        self._answer(SWITCHED)
        self._forget()

    def _refusal(self) -> str:
        """Why the run cannot do what is asked first."""
        own, others, new = release(), self._ask.get("version"), Path(self._ask["to"])
        try:
            self._check()
        except WaterclockError as error:
            return str(error)
        if self._ask["step"] != RECORD:
            return "it has given up already what the command goes on with"
        if own != others:
            return f"the run is of waterclock {own}, the command of {others}: give it with that of the run"
        if not all(os.access(each, os.R_OK | os.W_OK) for each in (new, new / LOCK)):
            return f"the run does not see {new}, or may not write there: give the command on its machine, as its user"
        if not self._master.startswith("local"):
            return f"the run is on {self._master}, and its state can be carried over only while it does not run"
        return ""

    def _why_alone(self, asked: Mapping[str, Any], is_let_go: bool) -> str:
        """Why the run does not go on with what it was asked for."""
        return self._given_up or ("the command is gone" if is_let_go or not asked else "")

    def _go_on_alone(self, why: str) -> None:
        log.warning("the run goes on with the checkpoint %s: %s", self._folder, why)
        self._answer(ALONE, why=why)
        self._forget()

    def _answer(self, step: str, **more: Any) -> None:
        assert self._folder is not None
        write(self._folder / ANSWERED, json.dumps({"id": self._ask["id"], "step": step, **more}) + "\n")

    def _forget(self) -> None:
        self._ask, self._first, self._given_up, self.halts = {}, None, "", False
        if self._folder is not None:
            for name in (FLAG, ASKED):
                (self._folder / name).unlink(missing_ok=True)

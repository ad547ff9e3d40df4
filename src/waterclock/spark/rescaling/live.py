"""The state of a pipeline that runs, carried over into another number of buckets while it goes on; it stands still for the
last of it alone.

The new buckets are given once more what the run gives to the old ones, batch by batch (packing/recording.py), and what they
make of it is thrown away: it is in the sink. Numbered; a test kills the run, and the command, behind each:

     1. what cannot be carried over is refused; nothing is written yet
     2. the new folder says that it is being made; what a killed try left in it goes
     3. the run is asked to write down what it gives to its buckets, and says since which batch it does
     4. the state before that batch is set aside: links to Spark's files, which Spark would tidy away
     5. it is carried over as while nothing runs (carry.py, 3 and 4)
     6. what was written down meanwhile goes through the new buckets, again and again, until little is left
     7. the run halts where a batch begins, once its sink has all before it
     8. the last of it goes through the new buckets; offsets, logs and settings are laid beside the state; the old folder
        says which one is to take its place
     9. the command lets the new folder go: the run hands the sink over, in one transaction, and goes on with it
        (succession.py)

Rule 1: until 9 the old checkpoint counts, and the run can go on with it at any moment. The sink decides, as in carry.py.
        A command that dies behind 8 has let go too.
Rule 2: the new buckets count as many events, releases and the rest as the old ones did, in each part of 6 and in 8, or
        nothing is handed over.
Rule 3: a batch counts once it is in the sink and Spark has noted it as done: what was written down behind that is passed
        over, and the new checkpoint runs it again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from waterclock.clock import Clock, SystemClock
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.rules.events import Counters
from waterclock.spark.checkpoint import state_files
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.recording import BatchNote, noted, recorded
from waterclock.spark.rescaling.carry import Rescale
from waterclock.spark.rescaling.stored import ROUND
from waterclock.spark.succession import ALONE, ANSWERED, ASKED, HALT, HALTED, RECORD, RECORDING, SWITCHED, release, said
from waterclock.streaming import frames
from waterclock.streaming.buckets import labels, places
from waterclock.streaming.checkpoint import stored, write
from waterclock.streaming.owner import is_free
from waterclock.wording import counted

LITTLE_S = 2.0  # what goes through the new buckets in this time is left for the halt
MOST_S = 20.0  # and this much, where it does not become less from one time to the next
_LESS = 0.7
PATIENCE_S = 60.0  # for the first answer of a run: then it is known to be there, and to answer
_LOOK_EVERY_S = 0.05
_COUNTED = (*({*Counters.names()} - {"heartbeats"}), "results")  # by the buckets, not by who reads


@dataclass(frozen=True, slots=True)
class LiveState:
    """A state that was carried over while its pipeline ran: what it is in, and what went through it once more."""

    checkpoint: Path
    buckets: int
    partitions: int
    batches: int
    events: int
    bytes: int
    halted_s: float

    def told(self) -> str:
        """How much was moved, for people."""
        return f"{counted(self.bytes, 'byte')}; the run goes on with it, and stood still for {self.halted_s:.1f} s"


class LiveRescale(Rescale):
    """The command's side, from step 1 to 9: the state of the pipeline that runs with the checkpoint `old` goes over into
    `new`, in `buckets` buckets."""

    _clock: Clock = SystemClock()
    _rounds = _batches = _events = _bytes = _grown = 0

    @property
    def _records(self) -> Path:
        return self._new.local / state_files.PARTS / "records"

    def move(self) -> LiveState:
        """UsageError, StateMismatch or another error of ours if it cannot be done: the run goes on as it was."""
        self._refuse_what_cannot_move()  # 1
        try:
            self.make_room()  # 2
            self._records.mkdir(parents=True)
            self._ask(RECORD)  # 3
            done = self._answer(RECORDING)["first"] - 1
            self._seen = self._set_aside(done)  # 4
            before = self.refuse()
            self._bytes = self.copy(before).bytes  # 5; the query takes each part of 6 and 8 as a batch more
            self._grown = self._bytes - before.bytes
            self.flush()
            done = self._catch_up(done)  # 6
            self._ask(HALT)  # 7
            halted = self._answer(HALTED)["done"]
            since = self._clock.monotonic_s()
            self._replay(done, halted)  # 8
            self.complete(halted, self._grown)
            self.end()  # 9
            self._answer(SWITCHED)
        finally:
            self.end()
            if said(self._old.local / ASKED).get("id") == self._query_id:  # and not what another command asks
                (self._old.local / ASKED).unlink(missing_ok=True)
        took = self._clock.monotonic_s() - since
        made = (self._new.local, self._buckets, self._partitions)
        return LiveState(*made, self._batches, self._events, self._bytes, round(took, 3))

    def _set_aside(self, done: int) -> Checkpoint:
        """Links to what Spark keeps of the state after batch `done`, whose files are never written twice."""
        until = self._clock.monotonic_s() + PATIENCE_S
        while (self._old.last_done() or 0) < done and self._clock.monotonic_s() < until:
            self._clock.sleep_s(_LOOK_EVERY_S)  # Spark notes it a moment behind the sink
        old, aside = self._old.local, self._records.with_name("aside")
        aside.mkdir()
        for name in ("metadata", "waterclock.json"):
            shutil.copy2(old / name, aside / name)
        for name in ("offsets", "commits"):
            (aside / name).mkdir()
            shutil.copy2(old / name / str(done), aside / name / str(done))
        shutil.copytree(old / "state", aside / "state", copy_function=_linked, ignore=shutil.ignore_patterns(".*"))
        return Checkpoint(aside)

    # what the run did meanwhile --------------------------------------------------------------------------------------

    def _catch_up(self, done: int) -> int:
        """Step 6; the last batch that went through the new buckets."""
        before_s = inf
        while True:
            last = done
            reached = self._old.last_done() or 0
            while last < reached and noted(self._records, last + 1) is not None:
                last += 1
            self._report(f"what the run did meanwhile: {last - done} of its batches")
            began = self._clock.monotonic_s()
            self._replay(done, last)
            self.flush()
            self._refuse_alone()
            done, took_s = last, self._clock.monotonic_s() - began
            no_less = took_s > _LESS * before_s
            if took_s < LITTLE_S or (no_less and took_s < MOST_S):
                return done
            if no_less:
                raise UsageError(
                    f"the run does more than can be done beside it: what it did meanwhile took {took_s:.0f} s, after "
                    f"{before_s:.0f} s before. It goes on as it was. Carry the state over when less comes in, or while it "
                    "does not run"
                )
            before_s = took_s

    def _replay(self, done: int, last: int) -> None:
        """Have what the buckets were given in batches `done` + 1 to `last` go through the new ones."""
        batches = [self._noted(number) for number in range(done + 1, last + 1)]
        if not batches:
            return
        self._rounds += 1
        self._lay_down_round(done, batches)
        assert self._query is not None, "5 comes first"
        found = self._query.batch(self._rounds, self.look)
        ours = frames.sum_counters(each[0] for each in found)
        theirs = frames.sum_counters(batch.counters for batch in batches)
        for name in (name for name in _COUNTED if ours.get(name, 0) != theirs.get(name, 0)):
            raise StateMismatch(
                f"of batches {done + 1} to {last} the old buckets counted {theirs.get(name, 0)} {name}, the new ones "
                f"{ours.get(name, 0)}: nothing was handed over, and the run goes on as it was. Please report this"
            )
        grown = sum(each[1] for each in found)
        self._bytes += grown
        self._grown += grown - theirs.get("state_bytes", 0)
        self._batches += len(batches)
        self._events += ours.get("events", 0)
        for number in range(done + 1, last + 1):
            for record in self._records.glob(f"{number:012d}*"):
                record.unlink()

    def _noted(self, number: int) -> BatchNote:
        found = noted(self._records, number)
        if found is None:
            raise StateMismatch(
                f"what the run gave to its buckets in batch {number} was not written down: nothing was handed over, and "
                "the run goes on as it was. Give the command again"
            )
        return found

    def _lay_down_round(self, done: int, batches: list[BatchNote]) -> None:
        """A row for each new bucket, with all of the batches."""
        count, before = self._buckets, labels(self._old.buckets() or 0)
        given: list[list[Any]] = [[] for _ in range(count)]
        for number, batch in enumerate(batches, done + 1):
            rows = self._split(recorded(self._records, number, before))
            for place in range(count):
                given[place].append([batch.watermark_ms, rows.get(place, [])])
        columns: list[Any] = [
            pa.nulls(count, pa.timestamp("us", tz="UTC")),
            pa.array(labels(count), pa.int32()),
            pa.array([f"{ROUND} {done:012d}"] * count, pa.string()),
            pa.array(map(msgpack.packb, given), pa.large_binary()),
        ]
        table = pa.Table.from_arrays(columns, ["ts", "bucket", "origin", "frame"])
        half = self._records / "round.parquet"
        pq.write_table(table, half)
        half.replace(Path(str(self._folder)) / f"round-{self._rounds:06d}.parquet")

    def _split(self, given: Iterator[bytes]) -> dict[int, list[bytes]]:
        """Frames by the places of new buckets, in their order; clocks go to all."""
        found: dict[int, list[bytes]] = {}
        for frame in given:
            table = frames.from_bytes(frame)
            if frames.kind_of(table) == "clock":
                for place in range(self._buckets):
                    found.setdefault(place, []).append(frame)
                continue
            of = places(table.column(self._rules.key), self._buckets)
            for place in sorted({*of.tolist()}):
                found.setdefault(place, []).append(frames.to_bytes(table.filter(pa.array(of == place))))
        return found

    # the run -----------------------------------------------------------------------------------------------------------

    def _refuse_what_cannot_move(self) -> None:
        old = self._old
        self.refuse_closed()
        if stored(old.local / "waterclock.json").get("rules") != repr(self._rules):
            raise UsageError(
                f"the rules in the file are others than those of the checkpoint {old.path}: undo the change, and give the "
                "command again"
            )
        if is_free(old.path):
            raise UsageError(
                f"no run has the checkpoint {old.path}: leave out --live, or name the one that the run has"
            )
        asked = said(old.local / ASKED)
        if asked and not is_free(Path(asked["to"])):
            raise UsageError(f"another command carries its state over, to {asked['to']}: wait for its end, or stop it")

    def _ask(self, step: str) -> None:
        whose = {"id": self._query_id, "version": release(), "step": step}
        asked = {**whose, "to": str(self._new.path), "records": str(self._records)}
        write(self._old.local / ASKED, json.dumps(asked) + "\n")

    def _answer(self, step: str) -> dict[str, Any]:
        """Wait until the run answers that it did a step; UsageError if nothing is heard of it at first."""
        until = self._clock.monotonic_s() + PATIENCE_S
        while True:
            if self._clock.monotonic_s() >= until:
                if step == RECORDING:
                    raise UsageError(
                        f"the run of the checkpoint {self._old.path} did not answer for {PATIENCE_S:.0f} s, and goes on as "
                        "it was: a run to the end cannot be asked, and one whose batch takes longer answers behind it"
                    )
                self._report(f"the run has not {step} yet, and is waited for")
                until += PATIENCE_S
            self.look()
            found = self._refuse_alone()
            if found.get("step") == step:
                return found
            self._clock.sleep_s(_LOOK_EVERY_S)

    def _refuse_alone(self) -> dict[str, Any]:
        """What the run answered last; UsageError if it is that it goes on alone."""
        found = said(self._old.local / ANSWERED)
        if found.get("id") != self._query_id:
            return {}
        if found["step"] == ALONE:
            raise UsageError(f"the run goes on with the checkpoint {self._old.path}: {found['why']}")
        return found

    def look(self) -> None:
        """See `Carry`. WaterclockError if the run is gone, or forgot what was asked, and not as it has the new one."""
        is_forgotten = not (self._old.local / ASKED).exists() or is_free(self._old.path)
        if is_forgotten and self._refuse_alone().get("step") != SWITCHED:  # it answers, then it forgets
            raise WaterclockError(
                f"the run of the checkpoint {self._old.path} ended, or began anew: start it again. Where it is told that "
                "its state was carried over, name the new checkpoint; else give the command again"
            )


def _linked(file: str, to: str) -> None:
    """A file that was tidied away meanwhile is not wanted."""
    with suppress(FileNotFoundError):
        try:
            os.link(file, to)
        except OSError:  # another disk
            shutil.copy2(file, to)

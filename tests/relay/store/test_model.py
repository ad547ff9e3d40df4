"""Random lives of a store beside the oracle, with crashes: the folder as a kill or a lost power leaves it, opened again.

Rule 1: the owner is played as it is to be: after a crash it reads the settlements from where the store was, then the input.
Rule 2: limits are tiny, so that a life of forty steps has snapshots, runs, merges and splits.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("numpy")

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.relay.store.stores import DAY, HOUR, NOON, US, Date, Oracle, Record, near, value
from waterclock.relay.store import PartitionStore, State, ids, ledger, pack, rows_of, spans
from waterclock.relay.store import store as module

KEPT = 2 * DAY
AHEAD = st.one_of(
    st.integers(-HOUR, 3 * HOUR),
    st.integers(-3 * DAY, 40 * DAY),
    st.integers(-NOON, 3_000 * DAY),
    st.sampled_from([0, HOUR, DAY, 30 * DAY, 400 * DAY]),
)
IDS = st.sampled_from([b"", b"", b"cart-17", b"cart-18", b"mail"])
TARGETS = st.sampled_from(["reminders", "mails"])
STEPS = st.sampled_from([1, 1, 1, 7, 70_000])
TINY = [(ids, "IN_MEMORY", 3), (ids, "FAN", 2), (ledger, "JOURNAL_BYTES", 300), (module, "TIDY_ROWS", 2)]


class StoreLife(RuleBasedStateMachine):
    """One life."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.patches = [mock.patch.object(*one) for one in (*TINY, (os, "fsync", lambda fd: None))]
        for patch in self.patches:
            patch.start()

    def teardown(self) -> None:
        self.store.close()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.folder)

    @initialize(begun=st.booleans(), large=st.sampled_from([0, 500, 1 << 26]))
    def start(self, begun: bool, large: int) -> None:
        self.patches.append(mock.patch.object(spans, "FULL_BYTES", large))
        self.patches[-1].start()
        self.oracle, self.date, self.near = Oracle(), Date(), dict[int, int]()
        self.steps: Iterator[None] | None = None
        self.set_back = False
        self.store = PartitionStore(self.folder, US, self.date, kept_ms=KEPT)
        if begun:
            self.store.begin(self.oracle.end)

    # the owner's verbs

    def file(self, records: list[Record]) -> None:
        rows = rows_of([one.due for one in records], [one.origin for one in records])
        blobs = [pack(value(one.origin, one.due), b"key", one.id) for one in records]
        rows = self.store.append(rows, blobs, [one.target for one in records])
        rows = rows[rows["due"] < self.store.loaded_until]
        assert not self.near.keys() & set(rows["origin"].tolist())
        self.near |= dict(zip(rows["origin"].tolist(), rows["due"].tolist(), strict=True))

    def settle(self, origins: list[int], state: State) -> None:
        self.store.settle(np.array(origins, "i8"), state)
        for origin in origins:
            self.near.pop(origin, None)

    @rule(data=st.data(), count=st.integers(1, 12))
    def append(self, data: st.DataObject, count: int) -> None:
        records = []
        for _ in range(count):
            offset = self.oracle.end
            # a copy that was moved on: of a message that is known, or of one from before the input's start
            known = self.oracle.messages()
            old = data.draw(st.sampled_from([*known, *range(5)])) if data.draw(st.integers(0, 5)) == 3 else offset
            due = max(0, self.date.wall_ms() + data.draw(AHEAD))
            fresh = Record(offset, old, due, data.draw(TARGETS), data.draw(IDS))
            records.append(replace(known.get(old, fresh), offset=offset))
            self.oracle.input.append(records[-1])
            self.oracle.end += data.draw(STEPS)
        self.file(records)

    @rule(data=st.data(), state=st.sampled_from([State.DELIVERED, State.CANCELLED]))
    def settle_some(self, data: st.DataObject, state: State) -> None:
        known = [*self.oracle.messages(), *range(5), self.oracle.end, self.oracle.end + 1]
        origins = data.draw(st.lists(st.sampled_from(known), max_size=40))
        self.oracle.settled += [(origin, state) for origin in origins]
        self.settle(origins, state)

    @rule()
    def fire(self) -> None:
        """All that is due."""
        due = [origin for origin, due in self.near.items() if due <= self.date.wall_ms()]
        self.oracle.settled += [(origin, State.DELIVERED) for origin in due]
        self.settle(due, State.DELIVERED)

    @rule(ahead=st.integers(0, 3 * HOUR), most=st.integers(1, 5))
    def load(self, ahead: int, most: int) -> None:
        found = near(self.store, self.date.wall_ms() + ahead, most)
        assert not found.keys() & self.near.keys()
        self.near |= found

    @rule(steps=st.integers(1, 6))
    def tidy(self, steps: int) -> None:
        for _ in range(steps):
            self.store.tidy()

    @rule(by=st.one_of(st.integers(0, 2 * HOUR), st.integers(0, 70 * DAY)))
    def turn(self, by: int) -> None:
        self.date.advance_s(by / 1_000)

    @rule(steps=st.integers(0, 30))
    def checkpoint(self, steps: int) -> None:
        """Some steps of one; the next time, the rest of them, or of a new one."""
        if self.steps is None:
            self.steps = self.store.checkpoint_steps(self.oracle.end, b"", len(self.oracle.settled))
        if len(list(islice(self.steps, steps))) < steps:
            self.steps = None

    @rule()
    def unload(self) -> None:
        self.store.unload()
        self.near.clear()

    # the crash

    @rule(data=st.data(), back=st.sampled_from([0, 0, 5, HOUR, 50 * DAY]))
    def crash(self, data: st.DataObject, back: int) -> None:
        self.store.close()
        self.steps = None
        self.tear(data)
        self.date, self.set_back = Date(self.date.wall_ms() - back), self.set_back or back > 0
        self.store = PartitionStore(self.folder, US, self.date, kept_ms=KEPT)
        self.near.clear()
        assert self.store.rebuilt in (None, "there are files and no manifest")
        news: dict[State, list[int]] = {}
        for origin, state in self.oracle.settled[self.store.settled_position :]:
            news.setdefault(state, []).append(origin)
        for origin, state in self.oracle.settled[self.store.settled_position :]:
            self.settle([origin], state)
        if records := [one for one in self.oracle.input if one.offset >= self.store.data_position]:
            self.file(records)

    def tear(self, data: st.DataObject) -> None:
        """What was written behind the last checkpoint arrived in part, or as something else."""
        lengths = named(self.store.folder)
        for path in sorted(self.store.folder.iterdir()):
            if path.name in ("manifest", "lock") or data.draw(st.booleans()):
                continue
            whole = path.read_bytes()
            kept = data.draw(st.integers(lengths.get(path.name, 0), len(whole)))
            path.write_bytes(whole[:kept] + data.draw(st.binary(max_size=60)))

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "oracle"):
            return
        pending = self.oracle.pending()
        counts: dict[str, int] = {}
        for span in self.store.spans():
            for target, count in span.pending.items():
                counts[target] = counts.get(target, 0) + count
        assert (self.store.pending, counts) == (len(pending), self.oracle.counts())
        edge = self.store.loaded_until
        assert self.near.items() <= {origin: one.due for origin, one in pending.items()}.items()
        behind = {origin for origin, due in self.near.items() if due >= edge}
        assert self.near.keys() - behind == {origin for origin, one in pending.items() if one.due < edge}
        assert not behind or self.set_back  # what was filed as long past, by the clock before
        known = sorted(self.oracle.messages())
        assert self.store.is_settled(np.array(known, "i8")).tolist() == [one not in pending for one in known]
        first = self.store.next_due
        assert (first is None) == (not pending)
        assert first is None or all(first <= one.due for one in pending.values())

    @rule(id=IDS.filter(bool))
    def find(self, id: bytes) -> None:
        assert [tuple(one) for one in self.store.find(id)] == self.oracle.found(id, self.date.wall_ms() - KEPT)


def named(folder: Path) -> dict[str, int]:
    """The files that the manifest names, with their lengths."""
    try:
        content = json.loads((folder / "manifest").read_bytes().partition(b"\n")[0])
    except FileNotFoundError:
        return {}
    return dict(files_in(content))


def files_in(stored: object) -> Iterator[tuple[str, int]]:
    """Every [name, mark, length, ...] in it."""
    if isinstance(stored, dict):
        stored = [*stored.values()]
    if isinstance(stored, list):
        if len(stored) >= 3 and isinstance(stored[0], str) and isinstance(stored[1], str) and len(stored[1]) == 16:
            yield stored[0], stored[2]
        for one in stored:
            yield from files_in(one)


class LongStoreLife(StoreLife):
    """The same, longer and more often."""


TestStoreLife = StoreLife.TestCase
TestStoreLife.settings = settings(max_examples=12, stateful_step_count=40, deadline=None, print_blob=True)
TestLongStoreLife = pytest.mark.long(seconds=12)(LongStoreLife.TestCase)
TestLongStoreLife.settings = settings(max_examples=150, stateful_step_count=60, deadline=None, print_blob=True)

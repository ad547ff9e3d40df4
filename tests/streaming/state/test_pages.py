"""Pages of keys that rest, against a dict: what goes in comes out once, whatever lies where."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.state.blobs import Disk
from waterclock.errors import StateMismatch
from waterclock.streaming.state import states as stored_states
from waterclock.streaming.state.blobs import BlobStore
from waterclock.streaming.state.pages import KeySet, Pages, most_by
from waterclock.streaming.state.states import States

ROWS = pa.schema([("row", pa.string())])


def states(of: dict[Any, tuple[bytes, list[str]]]) -> States:
    """key -> (state, the rows that it holds)."""
    rows = [row for _, held in of.values() for row in held]
    batch = pa.RecordBatch.from_pydict({"row": rows}, schema=ROWS) if rows else None
    packed = pa.array([state for state, _ in of.values()], pa.binary())
    return States(pa.array(list(of)), packed, np.array([len(held) for _, held in of.values()], np.int32), batch)


def plain(found: Iterable[States]) -> dict[Any, tuple[bytes, list[str]]]:
    """What `states` took, of all of them; no key twice."""
    taken: dict[Any, tuple[bytes, list[str]]] = {}
    for some in found:
        rows = [] if some.rows is None else some.rows.column("row").to_pylist()
        for key, state, held in zip(some.keys.to_pylist(), some.packed.to_pylist(), some.held.tolist(), strict=True):
            assert key not in taken
            taken[key] = state, rows[:held]
            rows = rows[held:]
        assert not rows
    return taken


class Bench:
    """Pages that are stored and loaded at each step, and the dict beside them."""

    def __init__(self) -> None:
        self.disk, self.free, self.stored, self.size = Disk(), 0, list[Any](), 0
        self.expected: dict[Any, tuple[bytes, list[str]]] = {}

    def step(self, add: dict[Any, tuple[bytes, list[str]]], take: set[Any]) -> None:
        store = BlobStore(self.disk, self.free)
        pages = Pages(store, self.stored)
        wanted = KeySet(take)
        assert plain(pages.take(wanted)) == {key: self.expected.pop(key) for key in take & self.expected.keys()}
        assert plain(pages.take(wanted)) == {}
        fresh = {key: state for key, state in add.items() if key not in self.expected}
        if fresh:
            pages.add(states(fresh), stored_states.hashes(fresh), None)
        pages.tidy()
        self.expected |= fresh
        self.free, self.stored = store.free, pages.dump()
        self.size += store.grown
        assert self.size == self.disk.size()

    def all(self) -> dict[Any, tuple[bytes, list[str]]]:
        return plain(
            Pages(BlobStore(self.disk, self.free), self.stored).take(KeySet(self.expected.keys() | {"nobody"}))
        )


texts = st.sampled_from([f"k{n}" for n in range(30)])
numbers = st.integers(-5, 25)
held = st.lists(st.sampled_from(["r", "s", "t"]), max_size=3)


def cut_up(monkeypatch: pytest.MonkeyPatch, segment: int = 2, many: int = -1) -> None:
    """Every page of more than `segment` states is cut into segments of that, where more than `many` keys rest."""
    for name, value in {"MANY": many, "SEGMENT": segment, "CUT_FROM": segment}.items():
        monkeypatch.setattr(f"waterclock.streaming.state.pages.{name}", value)


def steps(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(
        st.tuples(
            st.dictionaries(keys, st.tuples(st.binary(max_size=4), held), max_size=12), st.sets(keys, max_size=8)
        ),
        max_size=14,
    )


@settings(max_examples=50, deadline=None)
@given(steps(texts) | steps(numbers))
def test_what_rests_comes_out_once_and_as_it_was(todo: Any) -> None:
    bench = Bench()
    for add, take in todo:
        bench.step(add, take)
    assert bench.all() == bench.expected


@settings(max_examples=50, deadline=None)
@given(steps(texts) | steps(numbers), st.integers(1, 3))
def test_what_rests_in_segments_comes_out_once_and_as_it_was(todo: Any, segment: int) -> None:
    bench = Bench()
    with pytest.MonkeyPatch.context() as patched:
        cut_up(patched, segment, many=3)
        for add, take in todo:
            bench.step(add, take)
        assert bench.all() == bench.expected


def test_of_a_page_in_segments_those_are_read_that_have_a_wanted_key(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_up(monkeypatch)
    bench = Bench()
    bench.step({n: (bytes([n]), ["r"] * (n % 3)) for n in range(9)}, set())
    bench.disk.calls = 0
    bench.step({}, {2, 3, 8})
    assert bench.disk.calls == 1 + 2
    assert bench.all() == bench.expected


def test_a_large_page_of_which_a_part_was_wanted_is_cut_once_there_are_many_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut_up(monkeypatch, segment=4, many=29)
    bench = Bench()
    for first in (0, 10, 100, 200):
        monkeypatch.setattr("waterclock.streaming.state.pages._MANY", 99)  # none become one
        bench.step({n: (b"x", ["r"]) for n in range(first, first + 10)}, set())
    assert [page[5] for page in bench.stored] == [10, 10, 4, 4]
    bench.step({}, {77})
    assert [page[5] for page in bench.stored] == [10, 10, 4, 4]
    bench.step({}, {3, 13})
    assert [page[5] for page in bench.stored] == [10, 4, 4, 4]
    bench.step({}, {14})
    assert [page[5] for page in bench.stored] == [4, 4, 4, 4]
    assert bench.all() == bench.expected


def test_where_few_keys_rest_and_of_small_pages_all_is_one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_up(monkeypatch, segment=4, many=99)
    bench = Bench()
    bench.step({n: (b"x", []) for n in range(9)}, set())
    bench.step({}, {3})
    assert [(page[2], page[5]) for page in bench.stored] == [(9, 9)]
    cut_up(monkeypatch, segment=2)
    monkeypatch.setattr("waterclock.streaming.state.pages.CUT_FROM", 4)
    bench.step({n: (b"x", []) for n in range(20, 24)}, set())
    bench.step({n: (b"x", []) for n in range(30, 35)}, set())
    assert [(page[2], page[5]) for page in bench.stored] == [(9, 9), (4, 4), (5, 2)]


def test_a_segment_is_read_once_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_up(monkeypatch, segment=4)
    disk = Disk()
    pages = Pages(BlobStore(disk), ())
    pages.add(states(of := {n: (b"x", []) for n in range(9)}), stored_states.hashes(of), None)
    disk.calls = 0
    for some in ({0}, {1, 2}, {3, 8}):
        assert set(plain(pages.take(KeySet(some)))) == some
    assert disk.calls == 1 + 2  # the index is known to who wrote it no more than to others


def test_a_page_as_it_was_written_before_there_were_segments_is_read() -> None:
    store = BlobStore(Disk())
    of = {n: (bytes([n]), ["r"] * (n % 3)) for n in range(9)}
    blobs = [store.put(blob) for blob in (stored_states.hashes(of).tobytes(), *stored_states.to_blobs(states(of)))]
    pages = Pages(store, [[blobs, store.grown, 9, bytes([0b10000000, 0]), None]])
    assert plain(pages.take(KeySet({0, 1, 5}))) == {key: of[key] for key in (1, 5)}
    again = Pages(store, pages.dump())
    again.tidy()
    assert plain(again.take(KeySet(of))) == {key: of[key] for key in (2, 3, 4, 6, 7, 8)}


@pytest.mark.parametrize("place", [0, 1, 5, 12, 40, 90, 200, 300])
def test_a_damaged_segment_is_told_as_such(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_up(monkeypatch)
    segment = next(stored_states.to_segments(states({n: (b"x", ["r"]) for n in range(2)}), 2))
    assert len(stored_states.from_segment(segment, ROWS, 2)) == 2
    with pytest.raises(StateMismatch, match="the stored state is damaged"):
        stored_states.from_segment(segment, ROWS, 3)
    for cut in (segment[:place], segment + b"x", segment[:place] + b"\xc1" + segment[place + 1 :]):
        try:
            found = stored_states.from_segment(cut, ROWS, 2)
        except StateMismatch as error:
            assert "the stored state is damaged" in str(error)  # noqa: PT017  # or it says something else now
        else:
            assert len(found) == 2


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "waterclock.streaming.state.states.hashes", lambda keys: np.array([len(key) % 2 for key in keys], np.uint32)
    )
    bench = Bench()
    bench.step({"k" * n: (bytes([n]), ["r"] * (n % 3)) for n in range(1, 9)}, set())
    bench.step({"x": (b"x", [])}, {"kk", "kkkkk", "never"})
    assert bench.all() == bench.expected
    assert len(bench.expected) == 7


def test_pages_stay_few_and_hold_little_that_is_dead() -> None:
    bench, number = Bench(), count()
    for _ in range(200):
        keys = [next(number) for _ in range(20)]
        bench.step({key: (b"x", []) for key in keys}, {key for key in bench.expected if key % 3})
    alive, on_pages = len(bench.expected), sum(page[2] for page in bench.stored)
    assert len(bench.stored) < 20
    assert alive <= on_pages <= 2 * alive


def test_a_page_is_written_anew_when_more_than_half_of_it_is_dead() -> None:
    bench = Bench()
    bench.step({n: (b"x", []) for n in range(20)}, set())
    bench.step({}, set(range(10)))
    assert [page[2] for page in bench.stored] == [20]
    bench.step({}, {10})
    assert [page[2] for page in bench.stored] == [9]
    assert bench.all() == bench.expected


def test_a_page_with_nothing_alive_is_gone() -> None:
    bench = Bench()
    bench.step({n: (b"x", ["r"]) for n in range(9)}, set())
    bench.step({}, set(range(9)))
    assert (bench.stored, bench.disk) == ([], {})


def test_of_a_page_without_a_wanted_key_only_the_hashes_are_read() -> None:
    bench = Bench()
    bench.step({n: (b"x", ["r"]) for n in range(9)}, set())
    bench.disk.calls = 0
    bench.step({}, {77, 78})
    assert bench.disk.calls == 1


def test_a_page_wakes_whole_when_its_time_comes() -> None:
    store = BlobStore(Disk())
    pages = Pages(store, ())
    pages.add(states(of := {"a": (b"1", []), "b": (b"2", [])}), stored_states.hashes(of), 100)
    pages.add(states(of := {"c": (b"3", [])}), stored_states.hashes(of), None)
    assert list(plain(pages.take(KeySet({"b"})))) == ["b"]
    assert plain(pages.take_due(99)) == {}
    assert list(plain(pages.take_due(100))) == ["a"]
    assert plain(pages.take_due(100)) == {}


def test_all_pages_whose_time_has_come_wake_at_once() -> None:
    pages = Pages(BlobStore(Disk()), ())
    for n, wake_at in enumerate([90, 101, 100, None, 95]):
        pages.add(states(of := {n: (b"x", [])}), stored_states.hashes(of), wake_at)
    assert sorted(plain(pages.take_due(100))) == [0, 2, 4]


def test_of_pages_that_become_one_the_time_of_most_counts() -> None:
    pages = Pages(BlobStore(Disk()), ())
    for n, wake_at in enumerate([101, None, 9_999_999, 100]):
        pages.add(states(of := {n: (b"x", [])}), stored_states.hashes(of), wake_at)
    for n in range(4, 7):
        pages.add(states(of := {n: (b"x", []), -n: (b"x", [])}), stored_states.hashes(of), 102)
    pages.tidy()
    assert [page[4] for page in pages.dump()] == [102]


@pytest.mark.parametrize(("times", "most"), [([], None), ([None], None), ([7], 7), ([3, None, 1, 4, 2], 3)])
def test_most_have_come_when_three_quarters_have(times: list[int | None], most: int | None) -> None:
    assert most_by(times) == most


def test_no_page_is_larger_than_said_however_many_keys_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.streaming.state.pages.LARGEST", 16)
    pages = Pages(BlobStore(Disk()), ())
    for first, many in ((0, 40), (40, 3), (43, 3), (46, 3), (49, 3)):
        pages.add(states(of := {n: (b"x", ["r"]) for n in range(first, first + many)}), stored_states.hashes(of), None)
        pages.tidy()
    assert [len(page) for page in pages.all()] == [16, 16, 8, 12]
    assert sorted(plain(pages.take(KeySet(range(60))))) == list(range(52))

"""How far a batch goes, and who reads what: every record once, within the limit, the same in every re-run."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from waterclock.streaming.topics.offsets import LEAST_SHARE, Offsets, Range, from_json, ranges, shares, to_json, up_to

places = st.tuples(st.sampled_from(["a", "b", "a.b"]), st.integers(0, 30))
offsets = st.dictionaries(places, st.integers(0, 200_000), max_size=12)


@settings(deadline=None)
@given(offsets)
def test_offsets_come_back_from_their_text(found: Offsets) -> None:
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


@settings(deadline=None)
@given(offsets)
def test_the_same_offsets_are_the_same_text_whatever_their_order(found: Offsets) -> None:
    assert json.dumps(to_json(found)) == json.dumps(to_json(dict(reversed(found.items()))))


@settings(deadline=None)
@given(offsets, offsets, st.integers(1, 100_000))
def test_a_batch_goes_on_never_back_and_never_beyond_the_end(start: Offsets, latest: Offsets, limit: int) -> None:
    end = up_to(start, latest, limit)
    assert end.keys() == latest.keys()
    for place, offset in end.items():
        first = start.get(place, 0)
        assert first <= offset <= max(first, latest[place])


@settings(deadline=None)
@given(offsets, offsets, st.integers(1, 100_000))
def test_a_limited_batch_is_no_larger_and_leaves_no_backlog_alone(start: Offsets, latest: Offsets, limit: int) -> None:
    taken = {each.place: len(each) for each in ranges(start, up_to(start, latest, limit))}
    behind = {each.place for each in ranges(start, latest)}
    assert taken.keys() == behind
    assert sum(taken.values()) <= max(limit, len(behind)) + len(behind)


@settings(deadline=None)
@given(offsets, offsets, st.integers(1, 1000))
def test_batch_after_batch_reads_everything_once(start: Offsets, latest: Offsets, limit: int) -> None:
    read: Offsets = dict.fromkeys(latest, 0)
    at = start
    for _ in range(1 + sum(map(len, ranges(start, latest)))):
        end = up_to(at, latest, max(limit, 20_000))
        for each in ranges(at, end):
            read[each.place] += len(each)
        if end == {**dict.fromkeys(latest, 0), **{p: o for p, o in at.items() if p in latest}}:
            break
        at = end
    assert read == {place: max(0, end - start.get(place, 0)) for place, end in latest.items()}


@settings(deadline=None)
@given(offsets, st.integers(1, 9))
def test_tasks_share_everything_and_nothing_twice(latest: Offsets, tasks: int) -> None:
    found = ranges({}, latest)
    made = shares(found, tasks)
    assert len(made) <= tasks
    again: dict[tuple[str, int], list[Range]] = {}
    for share in made:
        assert len({each.place for each in share}) == len(share)
        for each in share:
            again.setdefault(each.place, []).append(each)
    for each in found:
        pieces = again[each.place]
        assert (pieces[0].start, pieces[-1].end) == (each.start, each.end)
        assert all(before.end == after.start for before, after in pairwise(pieces))


def test_a_small_batch_is_one_task_and_a_large_one_is_spread_evenly() -> None:
    small = [Range("t", partition, 0, 100) for partition in range(8)]
    assert shares(small, 4) == [small]
    large = shares([Range("t", 0, 0, 4 * LEAST_SHARE)], 4)
    assert [len(each) for (each,) in large] == [LEAST_SHARE] * 4


def test_what_is_left_over_of_a_fair_share_is_read_too() -> None:
    assert up_to({("t", 0): 0}, {("t", 0): 1_000_000, ("t", 1): 1}, 10)[("t", 1)] == 1

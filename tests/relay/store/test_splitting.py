"""Spans as they come near: years become months, months days, days hours; nothing is lost, nothing comes twice."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, HOUR, NOON, append, checkpoint, near, reopened, settle
from waterclock.relay.store import PartitionStore, SpanLevel, files, spans
from waterclock.relay.store import store as module

FAR = NOON + 1_000 * DAY


def turn_to(store: PartitionStore, now_ms: int) -> None:
    store._clock.advance_to_ns((now_ms - NOON) * 1_000_000)  # type: ignore[attr-defined]


def levels(store: PartitionStore) -> list[SpanLevel]:
    return [span.level for span in store.spans()]


def test_a_span_becomes_finer_as_it_comes_near(store: PartitionStore) -> None:
    append(store, [(0, NOON + 2_000 * DAY)])
    seen = [levels(store)]
    for days in (1_000, 1_900, 1_970, 1_998, 1_999):
        turn_to(store, NOON + days * DAY)
        while store.tidy():
            pass
        seen.append(levels(store))
    assert seen == [
        [level]
        for level in (SpanLevel.YEAR, SpanLevel.MONTH, SpanLevel.MONTH, SpanLevel.DAY, SpanLevel.DAY, SpanLevel.HOUR)
    ]
    assert near(store, NOON + 2_000 * DAY + 1) == {0: NOON + 2_000 * DAY}


def test_a_load_splits_what_nobody_tidied(store: PartitionStore) -> None:
    messages = {n: FAR + n * HOUR // 2 for n in range(-200, 200)}
    messages = {n + 200: due for n, due in messages.items()}
    append(store, list(messages.items()))
    turn_to(store, FAR)
    assert near(store, FAR + 1, most=7) == {n: due for n, due in messages.items() if due < FAR + HOUR}
    assert near(store, FAR + DAY, most=7) == {n: due for n, due in messages.items() if FAR + HOUR <= due < FAR + DAY}
    assert store.pending == 400


def test_what_is_settled_is_not_moved(store: PartitionStore) -> None:
    append(store, [(n, FAR + n) for n in range(10)])
    settle(store, 1, 2, 3)
    turn_to(store, FAR)
    found = near(store, FAR + HOUR)
    assert sorted(found) == [0, 4, 5, 6, 7, 8, 9]
    assert sum(span.count for span in store._table.by_number.values()) == 7


def test_a_split_goes_on_where_a_crash_left_it(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIDY_ROWS", 3)
    append(store, [(n, FAR + n) for n in range(10)])
    turn_to(store, FAR - DAY)
    for _ in range(3):  # the first one looks whether the index is whole
        store.tidy()
    checkpoint(store, 10)
    store.tidy()  # is lost
    with reopened(store, FAR) as again:
        assert (again.rebuilt, again.pending) == (None, 10)
        assert sorted(span.count for span in again._table.by_number.values()) == [6, 10]
        assert near(again, FAR + HOUR) == {n: FAR + n for n in range(10)}
        checkpoint(again, 10)
        assert len(list(again.folder.glob("*.data"))) == 1


def test_a_load_takes_over_a_split_that_tidying_has_begun(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIDY_ROWS", 3)
    append(store, [(n, FAR + n) for n in range(10)])
    turn_to(store, FAR - DAY)
    store.tidy()
    store.tidy()
    assert len(store._table.by_number) == 2
    assert near(store, FAR + HOUR) == {n: FAR + n for n in range(10)}
    assert not store.tidy()


def test_what_a_load_is_splitting_is_not_tidied(store: PartitionStore) -> None:
    append(store, [(n, FAR + n) for n in range(10)])
    turn_to(store, FAR - HOUR)
    found: list[int] = []
    for rows in store.load(FAR + HOUR, 2):
        found += rows["origin"].tolist()
        store.tidy()
    assert found == list(range(10))


def test_between_two_steps_of_a_split_everything_goes_on(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIDY_ROWS", 2)
    append(store, [(n, FAR + n) for n in range(10)])
    turn_to(store, FAR - DAY)
    store.tidy()
    append(store, [(10, FAR + 10)])
    store.tidy()
    settle(store, 0, 9)
    store.tidy()
    checkpoint(store, 11)
    while store.tidy():
        pass
    assert near(store, FAR + HOUR) == {n: FAR + n for n in (*range(1, 9), 10)}
    assert store.pending == 9


@pytest.mark.parametrize("after", range(1, 7))
def test_a_split_span_in_which_all_is_settled_meanwhile_just_ends(
    store: PartitionStore, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIDY_ROWS", 2)
    monkeypatch.setattr(spans, "FULL_BYTES", 0)
    monkeypatch.setattr(files, "READ_BYTES", 160)
    append(store, [(n, FAR + n) for n in range(10)])
    turn_to(store, FAR - DAY)
    for _ in range(after):
        store.tidy()
    settle(store, *range(10))
    checkpoint(store, 10)
    while store.tidy():
        pass
    assert (store.pending, near(store, FAR + HOUR), store.rebuilt) == (0, {}, None)


def test_due_times_long_past_make_one_span(store: PartitionStore) -> None:
    append(store, [(n, n * 40 * DAY) for n in range(300)])
    assert len(store.spans()) == 1
    assert len(near(store, NOON)) == 300


@pytest.mark.parametrize("back", [HOUR, 3 * DAY, 400 * DAY])
def test_what_was_filed_before_the_clock_was_set_back_is_near_when_it_is_due(store: PartitionStore, back: int) -> None:
    append(store, [(0, NOON - back - 5), (1, NOON - back + 5), (2, NOON)])
    checkpoint(store, 3)
    with reopened(store, NOON - back) as again:
        assert near(again, NOON - back + HOUR).items() >= {0: NOON - back - 5, 1: NOON - back + 5}.items()
        rows = append(again, [(3, NOON - back - 9 * DAY), (4, NOON + HOUR)])
        assert (rows["due"] < again.loaded_until).tolist() == [True, False]
        assert near(again, NOON + 2 * HOUR).keys() >= {4}


def test_what_was_filed_as_long_past_comes_with_the_first_load_and_once_when_the_clock_is_set_back(
    store: PartitionStore,
) -> None:
    due = NOON - DAY - 1
    append(store, [(0, due)])
    checkpoint(store, 1)
    with reopened(store, NOON - 50 * DAY) as again:
        assert near(again, NOON - 50 * DAY + HOUR) == {0: due}  # long before: it waits in memory
        assert near(again, NOON) == {}


def test_what_is_late_behind_the_edge_comes_with_the_next_load(store: PartitionStore) -> None:
    """The story: the owner loaded up to one o'clock and then stood still for three days. What comes in now and was due at
    two lies behind the edge: it is not the owner's, and the next load must give it."""
    near(store, NOON + 1)
    turn_to(store, NOON + 3 * DAY)
    rows = append(store, [(0, NOON + 2 * HOUR), (1, NOON + 1), (2, NOON - 9 * DAY)])
    assert (rows["due"] < store.loaded_until).tolist() == [False, True, True]
    assert near(store, NOON + 3 * DAY) == {0: NOON + 2 * HOUR}


def test_a_clock_that_is_set_back_makes_no_span_coarser(store: PartitionStore) -> None:
    append(store, [(0, NOON)])
    checkpoint(store, 1)
    with reopened(store, NOON - 20 * DAY) as again:
        append(again, [(1, NOON)])
        assert [(span.level, span.pending) for span in again.spans()] == [(SpanLevel.HOUR, {"reminders": 2})]


def test_a_load_reads_no_more_of_an_hour_than_is_pending_and_what_lies_beside_it(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the rows of all that was settled within the hour: the longer a relay had run, the longer a take-over."""
    monkeypatch.setattr(spans, "FULL_ROWS", 10)
    for n in range(200):
        append(store, [(n, NOON + n)])
        if n >= 4 and n != 9:
            settle(store, n - 4)
    checkpoint(store, 200)
    assert sum(span.count for span in store._table.by_number.values()) <= 30
    store = reopened(store)
    assert near(store, NOON + HOUR) == {n: NOON + n for n in (5, 196, 197, 198, 199)}
    settle(store, 196, 197, 198, 199)
    checkpoint(store, 200)
    ((hour,),) = ([span.pending for span in store.spans()],)
    assert (hour, list(near(reopened(store), NOON + HOUR))) == ({"reminders": 1}, [5])
    store.close()

"""A query that is started again: after which pauses, how often, and what is said in the end. Time is turned by hand."""

from __future__ import annotations

import pytest

from waterclock.clock import ManualClock
from waterclock.spark.session.starts import MOST, Starts, too_slow

STORY = "org.apache.spark.SparkException: Python worker failed to connect back."


def never() -> bool:
    return False


def pauses(starts: Starts, clock: ManualClock, count: int) -> list[int]:
    """The pause before each of `count` starts, in seconds."""
    made = []
    for _ in range(count):
        before = clock.monotonic_s()
        assert starts.again(STORY)
        made.append(round(clock.monotonic_s() - before))
    return made


def test_each_pause_is_twice_as_long_as_the_one_before_and_then_it_is_given_up() -> None:
    clock = ManualClock()
    starts = Starts(never, clock)
    assert pauses(starts, clock, MOST - 1) == [2, 4, 8, 16, 32]
    before = clock.monotonic_s()
    assert not starts.again(STORY)
    assert clock.monotonic_s() == before


def test_a_committed_batch_gives_all_starts_back() -> None:
    # a live run of weeks ended at its fifth slow moment
    clock = ManualClock()
    starts = Starts(never, clock)
    for _ in range(3):
        assert pauses(starts, clock, 3) == [2, 4, 8]
        starts.came_further()


def test_another_failure_is_not_tried_again() -> None:
    clock = ManualClock()
    assert not Starts(never, clock).again("java.io.IOException: No space left on device")
    assert clock.monotonic_s() == 0


def test_who_stops_does_not_wait_for_the_end_of_a_pause() -> None:
    clock = ManualClock()
    starts = Starts(lambda: clock.monotonic_s() >= 1, clock)
    assert not starts.again(STORY)
    assert clock.monotonic_s() == pytest.approx(1)


def test_what_is_said_names_the_load_and_where_more_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (43.2, 20.0, 10.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    told = str(too_slow(STORY, "/checkpoint/spark.log"))
    assert told.startswith("the machine has too much to do: ")
    assert "6 in a row took longer (load average 43 on 2 cores)" in told
    assert told.endswith("what it says stands in /checkpoint/spark.log")
    assert too_slow("java.io.EOFException", "log") is None

"""The promises of the array wheel (semantics.md, sections 1 and 2): one suite over both, with NumPy and without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wheel.array_wheels import ARRAY_WHEELS, Make, advance, cancel, schedule

pytestmark = pytest.mark.parametrize("make", ARRAY_WHEELS)

# Section 1, promises 1 and 2: never early, never forgotten


@pytest.mark.parametrize("start", [0, 1007, -1003])
@pytest.mark.parametrize("tick", [1, 7, 1000])
def test_a_timer_comes_out_at_its_deadline_rounded_up_to_the_tick_and_never_before(
    make: Make, tick: int, start: int
) -> None:
    for delay in (1, tick - 1, tick, tick + 1, 255 * tick, 256 * tick, 257 * tick, 65536 * tick + 1):
        wheel = make(tick, start)
        deadline = start + max(1, delay)
        up = deadline + -deadline % tick
        schedule(wheel, deadline)
        assert wheel.next_deadline() == up
        assert (advance(wheel, up - 1), advance(wheel, up)) == ([], [deadline])


def test_after_advance_nothing_due_is_left_at_either_end_of_any_level(make: Make) -> None:
    edges = sorted({256**k + d for k in range(1, 6) for d in (-1, 0, 1)})
    for number, now in enumerate(edges):
        wheel = make()
        schedule(wheel, *edges)
        assert advance(wheel, now) == edges[: number + 1]
        wheel._check()


# 3: order


def test_timers_come_out_by_tick_and_within_a_tick_in_the_order_of_scheduling(make: Make) -> None:
    wheel = make(tick=10)
    first = schedule(wheel, 29, 21, 30, 25, 5)
    second = schedule(wheel, 22, 1)
    ids, deadlines = wheel.advance(30)
    assert deadlines.tolist() == [5, 1, 29, 21, 30, 25, 22]
    assert ids.tolist() == [first[4], second[1], *first[:4], second[0]]


@pytest.mark.parametrize("many", [1, 40])
def test_the_order_of_scheduling_holds_through_whatever_levels_timers_came(make: Make, many: int) -> None:
    wheel, expected = make(), []
    for now in (0, 60_000, 65_536, 69_900, 69_990):
        wheel.advance(now)
        expected += schedule(wheel, *[70_000] * many)
    assert wheel.advance(70_000)[0].tolist() == expected


def test_a_block_that_is_due_as_a_whole_comes_out_in_order_like_one_turned_tick_by_tick(make: Make) -> None:
    deadlines = [300 + 37 * n % 256 for n in range(700)]
    jump, turned = make(), make()
    ids = schedule(jump, *deadlines)
    schedule(turned, *deadlines)
    expected = [name for _, name in sorted(zip(deadlines, ids, strict=True), key=lambda pair: pair[0])]
    assert jump.advance(1000)[0].tolist() == expected
    assert [name for now in range(1001) for name in turned.advance(now)[0].tolist()] == expected


@pytest.mark.parametrize("tick", [1, 10])
def test_of_a_block_whose_last_ticks_are_not_due_those_stay(make: Make, tick: int) -> None:
    for last in range(508, 513):
        wheel = make(tick)
        schedule(wheel, *[tick * n for n in range(256, 512)])
        assert advance(wheel, last * tick) == [tick * n for n in range(256, min(last, 511) + 1)]
        wheel._check()


# 5: no horizon, 9: a clock that steps back, 11: idle


def test_deadlines_reach_to_the_ends_of_time(make: Make) -> None:
    wheel = make(start=-(2**62))
    schedule(wheel, 2**62, 2**40, -(2**62), 2**62 - 1, 1 - 2**62)
    assert wheel.next_deadline() == -(2**62)
    assert advance(wheel, 2**61) == [-(2**62), 1 - 2**62, 2**40]
    assert advance(wheel, 2**62) == [2**62 - 1, 2**62]


def test_with_the_coarsest_tick_the_last_deadline_is_rounded_up_without_overflow(make: Make) -> None:
    wheel = make(tick=2**61, start=-(2**62))
    schedule(wheel, 2**62, 2**61 + 1, 1)
    assert wheel.next_deadline() == 2**61
    assert advance(wheel, 2**62 + 2**61) == [1, 2**62, 2**61 + 1]


def test_what_is_scheduled_for_the_past_is_due_at_the_next_advance_and_keeps_its_deadline(make: Make) -> None:
    wheel = make(start=50)
    schedule(wheel, 50, 7, -(2**62))
    assert wheel.next_deadline() == 50
    assert advance(wheel, 50) == [50, 7, -(2**62)]


def test_a_clock_that_steps_back_does_nothing(make: Make) -> None:
    wheel = make(start=100)
    schedule(wheel, 90, 95)
    assert advance(wheel, 99) == []
    assert (wheel.now, len(wheel)) == (100, 2)
    assert advance(wheel, 100) == [90, 95]


def test_no_empty_tick_is_walked(wheel: Any) -> None:
    schedule(wheel, 2**60, 3)
    assert advance(wheel, 2**61) == [3, 2**60]


def test_after_a_rest_a_short_timer_needs_one_level(wheel: Any) -> None:
    schedule(wheel, 5)
    wheel.advance(2**40 - 3)
    schedule(wheel, 2**40 + 50)
    assert wheel.statistics().levels == 1


def test_after_a_rest_a_short_timer_goes_down_no_level_while_a_long_one_waits(wheel: Any) -> None:
    schedule(wheel, 2**40)
    wheel.advance(70_000)
    schedule(wheel, 70_001)
    assert advance(wheel, 70_001) == [70_001]
    assert wheel.statistics().cascaded == 0


# Section 2, 2: ids


def test_ids_are_positive_and_none_is_given_twice(make: Make) -> None:
    wheel, seen = make(), []
    for now in range(0, 400, 2):
        seen += schedule(wheel, now + 1, now + 300, now + 2)
        cancel(wheel, seen[-2])
        wheel.advance(now)
    assert min(seen) > 0
    assert len(set(seen)) == len(seen) == 600


def test_an_unknown_an_old_and_a_repeated_id_cancel_nothing(wheel: Any) -> None:
    assert cancel(wheel, 1, 0, -1, 2**32) == [False] * 4
    ran, gone, kept = schedule(wheel, 1, 50, 50)
    wheel.advance(1)
    assert cancel(wheel, ran, gone, gone, kept + 2**32, kept - 2**63, kept + 10**6, 2**63 - 1, 0, -kept) == (
        [False, True, False] + [False] * 6
    )
    assert cancel(wheel, ran + 2**32, ran + 2**32 - 2**63, gone + 2**32 - 2**63) == [False] * 3  # not given yet
    (new,) = schedule(wheel, 60)  # in the place of one that is over
    assert cancel(wheel, gone, ran) == [False, False]
    assert wheel.advance(100)[0].tolist() == [kept, new]
    assert cancel(wheel, kept, new) == [False, False]


# 3: all or nothing


@pytest.mark.parametrize("wrong", [2**62 + 1, 2**63 - 1, -(2**62) - 1, -(2**63)])
def test_one_deadline_out_of_range_is_named_and_nothing_is_scheduled(make: Make, wrong: int) -> None:
    wheel = make(start=3)
    schedule(wheel, 5, 1)
    before = wheel.to_bytes()
    with pytest.raises(ValueError, match=f"deadlines must lie within .*, got {wrong}$"):
        schedule(wheel, 7, wrong, 8)
    assert wheel.to_bytes() == before


def test_wrong_arguments_of_advance_are_named_and_change_nothing(wheel: Any) -> None:
    schedule(wheel, 5)
    for wrong in (2**63, -(2**63), 2**62 + 2**61 + 1):
        with pytest.raises(ValueError, match="now must lie within"):
            wheel.advance(wrong)
    for limit in (-1, 2**63):
        with pytest.raises(ValueError, match="limit must lie within"):
            wheel.advance(9, limit)
    for odd in (1.5, "5", None):
        with pytest.raises(TypeError):
            wheel.advance(odd)
    assert (wheel.now, len(wheel)) == (0, 1)


@pytest.mark.parametrize(
    ("name", "arguments"), [("tick", {"tick": 0}), ("tick", {"tick": 2**62}), ("start", {"start": -(2**62) - 1})]
)
def test_a_wrong_argument_of_a_wheel_is_named(make: Make, name: str, arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{name} must lie within"):
        make(**arguments)


# 4: limit


def test_a_limit_stops_within_a_tick_and_what_it_holds_back_comes_first_next_time(wheel: Any) -> None:
    ids = schedule(wheel, *[5] * 200, 6, 300)
    assert wheel.advance(400, 3)[0].tolist() == ids[:3]
    assert (wheel.now, wheel.next_deadline(), len(wheel)) == (400, 400, 199)
    assert cancel(wheel, ids[3], ids[2]) == [True, False]
    schedule(wheel, 401)
    found = [name for now in (400, 400, 500) for name in wheel.advance(now, 50)[0].tolist()]
    assert found == ids[4:154]
    assert wheel.advance(501)[0].tolist()[:-1] == ids[154:]


@pytest.mark.parametrize("limit", [20, 39, 40, 41])
def test_a_limit_stops_within_a_block_that_is_due_as_a_whole(wheel: Any, limit: int) -> None:
    schedule(wheel, *range(300, 340))
    assert advance(wheel, 1000, limit) == list(range(300, 300 + min(limit, 40)))
    assert advance(wheel, 1000) == list(range(300 + min(limit, 40), 340))


def test_a_limit_of_nothing_gives_nothing_and_moves_the_clock(wheel: Any) -> None:
    schedule(wheel, 5, 70_000)
    assert advance(wheel, 80_000, 0) == []
    assert (wheel.now, wheel.next_deadline()) == (80_000, 80_000)
    assert advance(wheel, 80_000, 2**62) == [5, 70_000]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_late_stand_behind_what_was_due_and_before_what_becomes_due(wheel: Any, limit: int) -> None:
    schedule(wheel, 10, 300, 20, 70_000)
    found = advance(wheel, 30, 1)
    schedule(wheel, 8, 29)  # late, while 20 is held back
    found += advance(wheel, 400, 0)
    schedule(wheel, 7)  # late as well, behind 300, which is due by now
    while len(wheel) > 1:
        found += advance(wheel, 400, limit)
        wheel._check()
    assert found == [10, 20, 8, 29, 300, 7]


def test_a_step_back_gives_nothing_of_what_a_limit_holds_back(wheel: Any) -> None:
    schedule(wheel, 5, 6)
    wheel.advance(10, 1)
    assert advance(wheel, 9) == []
    assert advance(wheel, 10) == [6]


# Statistics, and the earliest deadline


@pytest.mark.parametrize("tick", [1, 10])
def test_next_deadline_is_the_least_now_at_which_advance_gives_something(make: Make, tick: int) -> None:
    wheel = make(tick, start=3)
    schedule(wheel, 5, 19, 64, 65, 4000, 4000, 12345, 2**33)
    while (to := wheel.next_deadline()) is not None:
        assert advance(wheel, to - 1) == []
        assert wheel.next_deadline() == to
        assert advance(wheel, to) != []


def test_next_deadline_follows_cancels_and_earlier_timers(wheel: Any) -> None:
    late, early = schedule(wheel, 70_000, 66_000)
    assert wheel.next_deadline() == 66_000
    cancel(wheel, early)
    assert wheel.next_deadline() == 70_000
    schedule(wheel, 68_000, 69_000)
    assert wheel.next_deadline() == 68_000
    cancel(wheel, late)
    assert advance(wheel, 69_000) == [68_000, 69_000]
    assert wheel.next_deadline() is None


def test_statistics_count_what_happened(wheel: Any) -> None:
    ids = schedule(wheel, 1, 2, 300, 400)
    cancel(wheel, ids[3], ids[3])
    wheel.advance(20)
    found = wheel.statistics()
    assert (found.now, found.added, found.fired, found.cancelled, found.pending) == (20, 4, 2, 1, 1)
    assert found.buckets == 1


def test_an_empty_row_is_a_row(wheel: Any) -> None:
    assert (schedule(wheel), cancel(wheel), advance(wheel, 5)) == ([], [], [])

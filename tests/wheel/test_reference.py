"""The reference wheel is Kafka's structure: its levels, its buckets, its own test cases in our names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from waterclock.wheel.bucket import TaskCounter, TimerHandle, TimerTaskList
from waterclock.wheel.reference import TimingWheel


def nothing() -> None:
    pass


def places(wheel: TimingWheel) -> list[tuple[int, int, int]]:
    return [(view.level, view.bucket, view.expiration) for view in wheel.snapshot().buckets]


def clocks(wheel: TimingWheel) -> list[int]:
    return [level.current_time for level in wheel.snapshot().levels]


# The wheel


def test_a_new_wheel_has_one_level_whose_clock_is_the_start_rounded_down() -> None:
    (level,) = TimingWheel(tick=10, start=1007, slots=5).snapshot().levels
    assert (level.tick, level.wheel_size, level.interval, level.current_time) == (10, 5, 50, 1000)
    assert level.range == (1000, 1050)


def test_a_start_below_zero_is_rounded_down_not_towards_zero() -> None:
    assert clocks(TimingWheel(tick=10, start=-7)) == [-10]


def test_a_valid_timer_goes_to_the_bucket_of_its_tick() -> None:
    wheel = TimingWheel(tick=10, start=1000, slots=5, rounding="early")
    wheel.add_at(1015, nothing)
    assert places(wheel) == [(1, 1, 1010)]


def test_with_late_rounding_it_goes_to_the_bucket_of_the_tick_it_is_rounded_up_to() -> None:
    wheel = TimingWheel(tick=10, start=1000, slots=5)
    wheel.add_at(1015, nothing)
    wheel.add_at(1020, nothing)
    (view,) = wheel.snapshot().buckets
    assert (view.bucket, view.range, len(view.tasks)) == (2, (1020, 1030), 2)


def test_an_expired_timer_is_in_no_bucket_and_due_at_once() -> None:
    wheel = TimingWheel(tick=10, start=1000, rounding="early")
    timer = wheel.add_at(999, nothing)
    assert (wheel.snapshot().buckets, wheel.snapshot().due) == ((), (timer,))


def test_with_early_rounding_a_timer_of_the_current_bucket_is_due_at_once() -> None:
    wheel = TimingWheel(tick=10, start=1000, rounding="early")
    timers = [wheel.add_at(deadline, nothing) for deadline in (1000, 1005, 1009, 1010)]
    assert wheel.snapshot().due == tuple(timers[:3])


def test_a_cancelled_timer_is_in_no_bucket() -> None:
    wheel = TimingWheel()
    wheel.add(5, nothing).cancel()
    assert (wheel.snapshot().buckets, wheel.snapshot().queue, len(wheel)) == ((), (), 0)


def test_an_advance_within_a_tick_leaves_the_clock_and_one_to_the_next_tick_moves_it() -> None:
    wheel = TimingWheel(tick=10, start=1000)
    wheel.advance(1009)
    assert clocks(wheel) == [1000]
    wheel.advance(1010)
    assert clocks(wheel) == [1010]


def test_the_overflow_wheel_is_made_once_on_first_use_and_used_again() -> None:
    wheel = TimingWheel(tick=10, start=1000, slots=5)
    assert len(wheel.snapshot().levels) == 1
    wheel.add_at(1060, nothing)
    wheel.add_at(1100, nothing)
    assert [(level.tick, level.interval) for level in wheel.snapshot().levels] == [(10, 50), (50, 250)]
    assert places(wheel) == [(2, 1, 1050), (2, 2, 1100)]


def test_the_overflow_wheel_takes_the_clock_rounded_down_to_its_own_tick() -> None:
    wheel = TimingWheel(tick=10, start=1060, slots=5)
    wheel.add_at(1200, nothing)
    assert clocks(wheel) == [1060, 1050]


def test_the_overflow_clock_moves_only_when_its_whole_tick_has_passed() -> None:
    wheel = TimingWheel(tick=10, start=1000, slots=5)
    wheel.add_at(1200, nothing)
    wheel.advance(1049)
    assert clocks(wheel) == [1040, 1000]
    wheel.advance(1050)
    assert clocks(wheel) == [1050, 1050]


@pytest.mark.parametrize(("deadline", "level"), [(1, 1), (19, 1), (20, 2), (399, 2), (400, 3), (7999, 3), (8000, 4)])
def test_a_level_ends_just_before_its_interval(deadline: int, level: int) -> None:
    wheel = TimingWheel(slots=20)
    wheel.add(deadline, nothing)
    assert wheel.snapshot().buckets[0].level == level


def test_levels_of_unequal_size_multiply_and_the_last_size_repeats() -> None:
    wheel = TimingWheel(slots=(60, 60, 12))
    wheel.add(60 * 60 * 12 * 12, nothing)
    levels = wheel.snapshot().levels
    assert [level.wheel_size for level in levels] == [60, 60, 12, 12, 12]
    assert [level.tick for level in levels] == [1, 60, 3600, 43200, 518400]


def test_each_bucket_is_queued_once_however_many_timers_it_holds() -> None:
    wheel = TimingWheel(slots=20)
    for _ in range(3):
        wheel.add(5, nothing)
        wheel.add(25, nothing)
    assert [view.expiration for view in wheel.snapshot().queue] == [5, 20]
    wheel._check()


def test_a_bucket_is_used_again_a_turn_later() -> None:
    wheel = TimingWheel(slots=4)
    seen = []
    for _ in range(5):
        wheel.add(3, nothing)
        seen += [(view.bucket, view.expiration) for view in wheel.snapshot().queue]
        wheel.advance(wheel.now + 3)
    assert seen == [(3, 3), (2, 6), (1, 9), (0, 12), (3, 15)]


def test_a_wheel_that_starts_below_zero_queues_the_bucket_that_expires_at_minus_one() -> None:
    wheel = TimingWheel(start=-3)
    wheel.add_at(-1, nothing)
    assert [view.expiration for view in wheel.snapshot().queue] == [-1]
    assert [wheel.advance(-2), wheel.advance(-1)] == [0, 1]


def test_late_timers_come_through_the_same_levels_as_kafkas() -> None:
    wheel = TimingWheel(slots=20)
    timer = wheel.add(450, nothing)
    seen = []
    while wheel.snapshot().queue:
        view = wheel.snapshot().queue[0]
        seen.append((view.level, view.bucket, view.expiration))
        wheel.advance(view.expiration)
    assert seen == [(3, 1, 400), (2, 2, 440), (1, 10, 450)]
    assert not timer.pending


# Kafka's timer cases


def test_timers_that_expired_before_they_were_added_all_run_at_the_next_advance() -> None:
    wheel = TimingWheel(slots=3)
    ran: list[int] = []
    for delay in range(-5, 0):
        wheel.add(delay, lambda delay=delay: ran.append(delay))
    assert wheel.advance(0) == 5
    assert ran == [-5, -4, -3, -2, -1]


@pytest.mark.parametrize("rounding", ["early", "late"])
def test_through_a_wheel_of_three_slots_each_timer_runs_exactly_once_and_in_order(rounding: str) -> None:
    wheel = TimingWheel(slots=3, rounding=rounding)  # type: ignore[arg-type]
    delays = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    ran: list[tuple[int, int]] = []
    for number, delay in enumerate(delays):
        wheel.add(delay, lambda delay=delay, number=number: ran.append((delay, number)))
    for now in range(0, 500, 7):
        wheel.advance(now)
        wheel._check()
    wheel.advance(500)
    assert ran == sorted((delay, number) for number, delay in enumerate(delays))


# Kafka's list cases


def ring(count: int) -> tuple[TaskCounter, TimerTaskList, list[TimerHandle]]:
    counter = TaskCounter()
    bucket = TimerTaskList(counter)
    timers = [TimerHandle(None, nothing) for _ in range(count)]
    for timer in timers:
        bucket.add(timer)
    return counter, bucket, timers


def test_every_add_is_counted() -> None:
    counter, bucket, timers = ring(5)
    assert counter.value == 5
    assert list(bucket) == timers


def test_a_move_between_lists_keeps_the_count() -> None:
    counter, bucket, timers = ring(5)
    other = TimerTaskList(counter)
    for timer in timers:
        other.add(timer)
    assert (counter.value, list(bucket), list(other)) == (5, [], timers)


def test_adding_again_to_the_same_list_moves_it_last() -> None:
    counter, bucket, timers = ring(3)
    bucket.add(timers[0])
    assert (counter.value, list(bucket)) == (3, [timers[1], timers[2], timers[0]])


def test_removing_twice_or_from_another_list_changes_nothing() -> None:
    counter, bucket, timers = ring(3)
    bucket.remove(timers[1])
    bucket.remove(timers[1])
    TimerTaskList(counter).remove(timers[0])
    assert (counter.value, list(bucket)) == (2, [timers[0], timers[2]])


def test_iteration_survives_the_removal_of_what_it_is_at() -> None:
    counter, bucket, timers = ring(5)
    seen = []
    for timer in bucket:
        seen.append(timer)
        bucket.remove(timer)
    assert (seen, counter.value) == (timers, 0)


def test_flush_empties_the_list_and_takes_it_off_the_queue() -> None:
    counter, bucket, timers = ring(3)
    assert bucket.set_expiration(7)
    assert not bucket.set_expiration(7)
    assert bucket.flush() == timers
    assert (counter.value, bucket.expiration, bool(bucket)) == (0, -1, False)
    assert bucket.set_expiration(7)


# The face


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, env=environment)


WITHOUT = "import sys; sys.modules['waterclock.wheel._objects'] = None\n"


def test_without_the_compiled_wheel_the_reference_one_takes_over_and_says_so_once() -> None:
    code = WITHOUT + (
        "import waterclock.wheel as wheel, waterclock.wheel.reference as reference\n"
        "import waterclock.wheel\n"
        "assert wheel.TimingWheel is reference.TimingWheel and not wheel.COMPILED\n"
    )
    done = python(code, "-W", "always")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ReferenceWheelWarning") == 1
    assert "build_ext --inplace" in done.stderr


def test_the_warning_can_be_told_from_others() -> None:
    done = python(WITHOUT + "from waterclock.wheel import TimingWheel", "-W", "error::RuntimeWarning")
    assert done.returncode == 1
    assert "ReferenceWheelWarning" in done.stderr


def test_who_uses_no_wheel_is_not_told_which_one_it_would_be() -> None:
    done = python(WITHOUT + "import waterclock.cli, waterclock.wheel.reference", "-W", "error::RuntimeWarning")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_wheel_imports_nothing_outside_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import waterclock.wheel\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "new -= {'waterclock'} | set(sys.stdlib_module_names)\n"
        "print(sorted(name for name in new if not name.startswith(('cython_runtime', '_cython_'))))\n"
    )
    done = python(code, "-W", "ignore")
    assert (done.stdout.strip(), done.stderr) == ("[]", "")

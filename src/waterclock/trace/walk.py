"""A wheel on its way through a scenario, a record a step.

Timers are added at their times; in between and afterwards the clock goes from bucket to bucket of the queue, until nothing
waits. A record shows the whole wheel after the step: what each level covers, which buckets are in use and what is in them,
the queue, what ran, and what went down a level. Its keys of `DETAIL` tell how that came:

    made        the levels that are new, with Kafka's parameters
    placing     for the timers that were placed: each level that was asked, the virtual id and the bucket
    middle      of an advance: the wheel when its hands have moved and nothing is put back yet, and what is in hand
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from waterclock.errors import UsageError
from waterclock.trace.scenario import Scenario, Task
from waterclock.wheel.bounds import MAX_TIME, whole
from waterclock.wheel.bucket import TimerHandle
from waterclock.wheel.reference import TimingWheel
from waterclock.wheel.statistics import LevelView, WheelSnapshot
from waterclock.wording import show_duration

Step = dict[str, Any]
DETAIL: Final = ("made", "placing", "middle")


def plain(step: Step) -> Step:
    """A step without its detail, as in the files of `waterclock/traces`."""
    return {key: value for key, value in step.items() if key not in DETAIL}


class OpenWheel(TimingWheel):
    """The wheel itself; `watch` is called each time that a timer is about to be placed."""

    watch: Callable[[], None] | None = None

    def _place(self, timer: TimerHandle) -> None:
        if self.watch is not None:
            self.watch()
        super()._place(timer)


class Walk:
    """A wheel on its way through a scenario; each call is one step and returns its record.

    >>> from waterclock.trace.scenario import load_scenario
    >>> walk = Walk(load_scenario("precise-advance"), "early")
    >>> [step.get("insert", step.get("advance_to")) for step in walk.steps()]
    ['a', 'b', 200, 800, 840]
    """

    def __init__(self, scenario: Scenario, rounding: str) -> None:
        self.scenario = scenario
        self.names: dict[TimerHandle, str] = {}
        self.ran: list[str] = []
        self.levels = 0  # how many were shown as made
        try:
            self.wheel = OpenWheel(
                scenario.tick_ms,
                scenario.start_ms,
                slots=scenario.slots,
                rounding="late" if rounding == "late" else "early",
            )
        except ValueError as error:
            raise UsageError(f"no wheel can be made of that: {error}") from error
        # before the walk begins: by hand the clock would go to where a timer is added first
        for task in scenario.timers:
            try:
                whole("deadline", task.deadline, -MAX_TIME, MAX_TIME)
            except ValueError as error:
                raise UsageError(
                    f"timer {task.name!r} cannot be added: it is due behind {show_duration(MAX_TIME)}, the last moment"
                ) from error

    def steps(self) -> Iterator[Step]:
        """Every timer at its time, and every bucket of the queue, until nothing waits."""
        for task in self.scenario.timers:
            while self.wheel.now < task.added:
                stop = self.next_stop()  # the first bucket of the queue comes before that time, or it does not
                yield self.advance(task.added if stop is None else min(stop, task.added))
            yield self.insert(task)
        while (to := self.next_stop()) is not None:
            yield self.advance(to)

    def next_stop(self) -> int | None:
        """Where the clock goes next: the first bucket of the queue, or now for what is due already."""
        snapshot = self.wheel.snapshot()
        if snapshot.due:
            return snapshot.now
        return snapshot.queue[0].expiration if snapshot.queue else None

    def begin(self) -> Step:
        """The wheel before its first timer: one level."""
        snapshot = self.wheel.snapshot()
        return {"begin": snapshot.now, "made": self.made(snapshot), "after": self.state(snapshot)}

    def insert(self, task: Task) -> Step:
        """Add one timer; `to` says where it went, None when it is due at once."""
        name, deadline = task.name, task.deadline
        timer = self.wheel.add_at(deadline, lambda: self.ran.append(name))
        self.names[timer] = name
        snapshot = self.wheel.snapshot()
        to = self.places(snapshot).get(name)
        where = {"level": to[0], "bucket": to[1]} if to else None
        placing = [{"timer": name, "asked": placing_of(timer.expiration, snapshot.levels)}]
        detail = {"made": self.made(snapshot), "placing": placing}
        return {"insert": name, "deadline": deadline, "to": where, **detail, "after": self.state(snapshot)}

    def advance(self, to: int) -> Step:
        """Turn the wheel to `to`; what ran and what moved is read off the pictures before and after."""
        before = self.places(self.wheel.snapshot())
        self.ran.clear()
        middle = self._turn(to)
        snapshot = self.wheel.snapshot()
        after = self.places(snapshot)
        fired = [{"timer": name, **_pair("from", before.get(name))} for name in self.ran]
        moved = [
            {"timer": name, **_pair("from", before[name]), **_pair("to", after[name])}
            for name in before
            if name in after and after[name] != before[name]
        ]
        detail = self._detail(middle, before, snapshot)
        return {"advance_to": to, "fired": fired, "moved_down": moved, **detail, "after": self.state(snapshot)}

    def _turn(self, to: int) -> WheelSnapshot | None:
        """The wheel when the first timer that came out of a bucket is about to be placed again; None if none did."""
        seen: list[WheelSnapshot] = []

        def look() -> None:
            if not seen:
                seen.append(self.wheel.snapshot())

        self.wheel.watch = look
        try:
            self.wheel.advance(to)
        finally:
            self.wheel.watch = None
        return seen[0] if seen else None

    def _detail(self, middle: WheelSnapshot | None, before: dict[str, tuple[int, int]], after: WheelSnapshot) -> Step:
        if middle is None:
            return {}
        waiting = self.places(middle)
        in_hand = [name for name in before if name not in waiting]
        by_name = {name: timer for timer, name in self.names.items()}
        placing = [{"timer": name, "asked": placing_of(by_name[name].expiration, middle.levels)} for name in in_hand]
        return {"middle": {"in_hand": in_hand, **self.state(middle)}, "placing": placing, "made": self.made(after)}

    def made(self, snapshot: WheelSnapshot) -> list[Step]:
        """The levels that were not there the last time; one starts at the clock of the level below when it was made."""
        new, self.levels = snapshot.levels[self.levels :], len(snapshot.levels)
        return [
            {
                "level": view.level,
                "start_ms": snapshot.levels[view.level - 2].current_time if view.level > 1 else self.scenario.start_ms,
                "tick_ms": view.tick,
                "wheel_size": view.wheel_size,
                "interval_ms": view.interval,
                "task_counter": len(self.wheel),
                "overflow_wheel": view.level + 1 if view.level < len(snapshot.levels) else None,
                "current_time": view.current_time,
            }
            for view in new
        ]

    def places(self, snapshot: WheelSnapshot) -> dict[str, tuple[int, int]]:
        """Level and bucket of every waiting timer, in the order of the queue."""
        return {self.names[timer]: (view.level, view.bucket) for view in snapshot.queue for timer in view.tasks}

    def state(self, snapshot: WheelSnapshot) -> Step:
        """The record of a snapshot, as in the files of `waterclock/traces`."""
        return {
            "current_time": [level.current_time for level in snapshot.levels],
            "level_tick": [level.tick for level in snapshot.levels],
            "buckets": [
                {
                    "level": view.level,
                    "bucket": view.bucket,
                    "expiration": view.expiration,
                    "timers": [self.names[timer] for timer in view.tasks],
                }
                for view in snapshot.buckets
            ],
            "queue": [
                {"expiration": view.expiration, "level": view.level, "bucket": view.bucket} for view in snapshot.queue
            ],
        }


def placing_of(expiration: int, levels: tuple[LevelView, ...]) -> list[Step]:
    """What each level answers, from the first up to the one that takes the timer: due, too late for it, or a bucket.

    >>> [asked.get("bucket") for asked in placing_of(21, (LevelView(1, 1, 20, 20, 0), LevelView(2, 20, 20, 400, 0)))]
    [None, 1]
    """
    asked: list[Step] = []
    for view in levels:
        start, end = view.range
        if expiration >= end:
            asked.append({"level": view.level, "ends": end})
            continue
        if expiration < start + view.tick:
            return [*asked, {"level": view.level, "due": True}]
        number = expiration // view.tick
        by = {"expiration": expiration, "tick_ms": view.tick, "wheel_size": view.wheel_size}
        return [*asked, {"level": view.level, **by, "virtual_id": number, "bucket": number % view.wheel_size}]
    return asked


def _pair(word: str, place: tuple[int, int] | None) -> Step:
    level, bucket = place or (0, 0)  # level 0: it was due without ever being in a level
    return {f"{word}_level": level, f"{word}_bucket": bucket}

"""A wheel on its way through a scenario, a record a step.

First each timer is added, then the clock goes from bucket to bucket of the queue until nothing waits. A record shows the
whole wheel after the step: what each level covers, which buckets are in use and what is in them, the queue, what ran, and
what went down a level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waterclock.errors import UsageError
from waterclock.trace.scenario import Scenario
from waterclock.wheel.bucket import TimerHandle
from waterclock.wheel.reference import TimingWheel
from waterclock.wheel.statistics import BucketView, WheelSnapshot

Step = dict[str, Any]


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
        try:
            self.wheel = TimingWheel(
                scenario.tick_ms,
                scenario.start_ms,
                slots=scenario.slots,
                rounding="late" if rounding == "late" else "early",
            )
        except ValueError as error:
            raise UsageError(f"no wheel can be made of that: {error}") from error

    def steps(self) -> Iterator[Step]:
        """Every insert, then every bucket of the queue until nothing waits."""
        for name, deadline in self.scenario.timers:
            yield self.insert(name, deadline)
        while (to := self.next_stop()) is not None:
            yield self.advance(to)

    def next_stop(self) -> int | None:
        """Where the clock goes next: the first bucket of the queue, or now for what is due already."""
        snapshot = self.wheel.snapshot()
        if snapshot.due:
            return snapshot.now
        return snapshot.queue[0].expiration if snapshot.queue else None

    def insert(self, name: str, deadline: int) -> Step:
        """Add one timer; `to` says where it went, None when it is due at once."""
        try:
            timer = self.wheel.add_at(deadline, lambda: self.ran.append(name))
        except ValueError as error:
            raise UsageError(f"timer {name!r} cannot be added: {error}") from error
        self.names[timer] = name
        snapshot = self.wheel.snapshot()
        to = self.places(snapshot).get(name)
        where = {"level": to[0], "bucket": to[1]} if to else None
        return {"insert": name, "deadline": deadline, "to": where, "after": self.state(snapshot)}

    def advance(self, to: int) -> Step:
        """Turn the wheel to `to`; what ran and what moved is read off the pictures before and after."""
        before = self.places(self.wheel.snapshot())
        self.ran.clear()
        self.wheel.advance(to)
        snapshot = self.wheel.snapshot()
        after = self.places(snapshot)
        fired = [{"timer": name, **_pair("from", before.get(name))} for name in self.ran]
        moved = [
            {"timer": name, **_pair("from", before[name]), **_pair("to", after[name])}
            for name in before
            if name in after and after[name] != before[name]
        ]
        return {"advance_to": to, "fired": fired, "moved_down": moved, "after": self.state(snapshot)}

    def places(self, snapshot: WheelSnapshot) -> dict[str, tuple[int, int]]:
        """Level and bucket of every waiting timer, in the order of the queue."""
        return {self.names[timer]: (view.level, view.bucket) for view in snapshot.queue for timer in view.tasks}

    def state(self, snapshot: WheelSnapshot) -> Step:
        """The record of a snapshot, as in the files of `waterclock/traces`."""
        return {
            "current_time": [level.current_time for level in snapshot.levels],
            "level_tick": [level.tick for level in snapshot.levels],
            "buckets": [self.bucket(view) for view in snapshot.buckets],
            "queue": [
                {"expiration": view.expiration, "level": view.level, "bucket": view.bucket} for view in snapshot.queue
            ],
        }

    def bucket(self, view: BucketView) -> Step:
        """The record of one bucket."""
        timers = [self.names[timer] for timer in view.tasks]
        return {"level": view.level, "bucket": view.bucket, "expiration": view.expiration, "timers": timers}


def _pair(word: str, place: tuple[int, int] | None) -> Step:
    level, bucket = place or (0, 0)  # level 0: it was due without ever being in a level
    return {f"{word}_level": level, f"{word}_bucket": bucket}

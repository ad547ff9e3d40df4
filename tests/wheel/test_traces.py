"""The four worked examples to the letter: the reference wheel with Kafka's rounding, every step."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from waterclock.wheel.bucket import TimerHandle
from waterclock.wheel.reference import TimingWheel
from waterclock.wheel.statistics import WheelSnapshot

FILES = ["seven_tasks", "three_levels_350_450", "clock_face", "precise_advance"]


def load(name: str) -> dict[str, Any]:
    text = resources.files("waterclock.traces").joinpath(f"{name}.json").read_text("utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


class Replay:
    """A wheel that is driven by a trace file, and what it shows in the words of that file."""

    def __init__(self, trace: dict[str, Any], rounding: str = "early") -> None:
        size = trace["wheel_size"]
        slots = tuple(size) if isinstance(size, list) else size
        self.wheel = TimingWheel(trace["tick_ms"], trace["start_ms"], slots=slots, rounding=rounding)
        self.names: dict[TimerHandle, str] = {}
        self.ran: list[str] = []

    def insert(self, name: str, deadline: int) -> None:
        self.names[self.wheel.add_at(deadline, lambda: self.ran.append(name))] = name

    def places(self) -> dict[str, tuple[int, int]]:
        queue = self.wheel.snapshot().queue
        return {self.names[timer]: (view.level, view.bucket) for view in queue for timer in view.tasks}

    def after(self) -> dict[str, Any]:
        shot: WheelSnapshot = self.wheel.snapshot()
        return {
            "current_time": [level.current_time for level in shot.levels],
            "level_tick": [level.tick for level in shot.levels],
            "buckets": [
                {
                    "level": view.level,
                    "bucket": view.bucket,
                    "expiration": view.expiration,
                    "timers": [self.names[timer] for timer in view.tasks],
                }
                for view in shot.buckets
            ],
            "queue": [
                {"expiration": view.expiration, "level": view.level, "bucket": view.bucket} for view in shot.queue
            ],
        }


@pytest.mark.parametrize("name", FILES)
def test_every_step_of_the_worked_example_holds_to_the_letter(name: str) -> None:
    trace = load(name)
    replay = Replay(trace)
    for number, step in enumerate(trace["steps"], 1):
        where = f"step {number} of {name}"
        before = replay.places()
        if "insert" in step:
            replay.insert(step["insert"], step["deadline"])
            to = (step["to"]["level"], step["to"]["bucket"])
            assert replay.places()[step["insert"]] == to, where
        else:
            replay.ran.clear()
            assert replay.wheel.next_deadline() is not None, where
            replay.wheel.advance(step["advance_to"])
            after = replay.places()
            fired = [(f["timer"], (f["from_level"], f["from_bucket"])) for f in step["fired"]]
            assert [(timer, before[timer]) for timer in replay.ran] == fired, where
            moved = [
                (m["timer"], (m["from_level"], m["from_bucket"]), (m["to_level"], m["to_bucket"]))
                for m in step["moved_down"]
            ]
            assert [(t, before[t], after[t]) for t in before if t in after and before[t] != after[t]] == moved, where
        replay.wheel._check()
        assert replay.after() == step["after"], where
    assert len(replay.wheel) == 0


@pytest.mark.parametrize("name", FILES)
def test_the_clock_goes_from_bucket_to_bucket_of_the_queue_and_nowhere_else(name: str) -> None:
    trace = load(name)
    replay = Replay(trace)
    for step in trace["steps"]:
        if "insert" in step:
            replay.insert(step["insert"], step["deadline"])
        else:
            first = replay.wheel.snapshot().queue[0].expiration
            assert first == step["advance_to"]
            replay.wheel.advance(first - 1)
            assert replay.wheel.snapshot().queue[0].expiration == first
            replay.wheel.advance(first)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("rounding", ["early", "late"])
def test_one_jump_runs_a_worked_example_in_the_order_of_its_steps(name: str, rounding: str) -> None:
    trace = load(name)
    replay = Replay(trace, rounding)
    for step in trace["steps"]:
        if "insert" in step:
            replay.insert(step["insert"], step["deadline"])
    replay.wheel.advance(10**15)
    assert replay.ran == [fired["timer"] for step in trace["steps"] for fired in step.get("fired", ())]


def test_precise_advance_opens_three_buckets_for_two_timers_not_840() -> None:
    replay = Replay(load("precise_advance"))
    replay.insert("a", 200)
    replay.insert("b", 840)
    replay.wheel.advance(840)
    assert replay.wheel.statistics().opened == 3  # 200, and 800 on the way to 840

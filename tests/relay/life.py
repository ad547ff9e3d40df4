"""A random life of relays, on a real broker, with time turned by hand; oracle.py says at each rest what must have come.

Rule 1: a life is a list of steps, drawn from a seed before anything happens. A step that makes no sense where it stands
    (a start of what runs, a wait for what is not there) does nothing: so every part of a list is a life too, and a
    failure can be made smaller by leaving steps out.
Rule 2: the wall clock and the monotonic clock are two: a wait moves both, a step of the clock only the wall.
Rule 3: a crash lets go of the files without a checkpoint. A static member's partitions wait for it, so it is what starts
    next where it has to; any other is forgotten by the group, as after its session's timeout.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from confluent_kafka import KafkaError, Message, Producer

from tests.relay.draw import Asked, Step
from tests.relay.oracle import HOUR_MS, Oracle, Request
from tests.relay.reader import Reader
from tests.relay.world import PATIENCE_S, World, state_of
from waterclock.clock import ManualClock
from waterclock.kafka.settings import base_settings
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay
from waterclock.relay.store.spans import Span
from waterclock.testing import Broker

START_MS = 2_214_000_000_000  # in 2040: every life begins then, so that its days and hours are those of the seed


class Death(BaseException):
    """Nobody catches it in the relay: it stands for kill -9."""


class SteppedClock(ManualClock):
    """One whose wall can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.moved_ms = START_MS - super().wall_ms()

    def wall_ms(self) -> int:
        return super().wall_ms() + self.moved_ms

    def pass_unseen(self, ms: int) -> None:
        """Only the monotonic clock goes on."""
        self.advance_s(ms / 1000)
        self.moved_ms -= ms


class Member(NamedTuple):
    """A relay's place: it runs, or it crashed and the group has not noticed yet."""

    relay: Relay
    static: bool
    runs: bool = True


class Life:
    """`play` a list of steps in a new world."""

    def __init__(self, broker: Broker, folder: Path, topic: str, partitions: int) -> None:
        self.world = World(broker, folder, topic, partitions)
        self.clock = self.world.clock = SteppedClock()
        self.targets = (self.world.target, f"{topic}.wide")
        broker.create_topic(self.targets[1], 3)
        self.oracle = Oracle(topic, self.clock.wall_ms())
        self.members: dict[str, Member] = {}
        self.reader = Reader(broker, [*self.targets, f"{topic}.replies", f"{topic}.dead"])
        self._producer = Producer({**base_settings(broker.bootstrap, {}), "linger.ms": 0})

    def play(self, steps: list[Step]) -> None:
        """All steps, and a rest at the end; a failure names its step, and lists all up to it."""
        done: list[Step] = []
        try:
            for step in [*steps, Step("rest")]:
                done.append(step)
                getattr(self, step.verb)(*step.arguments)
                self.oracle.now_ms = self.clock.wall_ms()
        except BaseException as error:
            error.add_note("\n".join(["These were the steps:", *map(str, done)]))
            raise
        finally:
            self.reader.close()
            self.world.__exit__()

    # What users do

    def ask(self, asked: Asked) -> None:
        """Requests, one behind the other; many of them in one place of time, and of one id."""
        for _ in range(asked.count):
            self._write(*self._request(asked), asked)
        assert self._producer.flush(10) == 0

    def _request(self, asked: Asked) -> tuple[Request, int]:
        """What it is to the oracle, and the timestamp of its record."""
        due_ms = max(0, asked.due_ms(self.clock.wall_ms()))
        target = self.targets[asked.target]
        stamp_ms = time.time_ns() // 1_000_000 - asked.age_ms  # the broker's own clock: it refuses the future
        headers = asked.headers(target, due_ms, stamp_ms, self.world.topic)
        id = (dict(headers).get("delay-id") or b"").decode(errors="replace")  # a fault may have brought its own
        request = Request(
            asked.action, asked.partition % self.world.partitions, -1, asked.key, asked.value, headers, id
        )
        if asked.action in ("schedule", "replace"):
            request.target, request.due_ms = target, due_ms
        return request, stamp_ms

    def _write(self, request: Request, stamp_ms: int, asked: Asked) -> None:
        request.known = not self._running()

        def written(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            request.offset = message.offset()
            self.oracle.write(request)

        self._producer.produce(
            self.world.topic,
            request.value,
            request.key,
            request.partition,
            on_delivery=written,
            timestamp=stamp_ms,
            headers=request.headers,
        )

    # Time

    def wait(self, ms: int) -> None:
        self.clock.advance_s(ms / 1000)

    def wait_for_next(self, off_ms: int) -> None:
        """Until the next message is due, or a little before or behind that."""
        due_ms = [one.due_ms for one in self.oracle.pending()]
        if due_ms and (ms := min(due_ms) + off_ms - self.clock.wall_ms()) > 0:
            self.wait(ms)

    def set_clock(self, ms: int) -> None:
        self.clock.moved_ms += ms

    # What befalls relays

    def start(self, place: str, static: bool) -> None:
        member = self.members.get(place)
        if member is not None and member.runs:
            return
        if member is not None and member.static:
            static = True
        elif member is not None:
            self._forget(place)
        self.members[place] = Member(self.world.relay(place, name=place if static else None), static)

    def _forget(self, place: str) -> None:
        """Its session ends."""
        self.world.close(self.members.pop(place).relay)

    def go(self, times: int) -> None:
        """Some steps of each relay, wherever that leads."""
        for _ in range(times):
            self._step()

    def _step(self) -> int:
        if self._running():
            self.oracle.run()
        return sum(relay.step(0.005) for relay in self._running())

    def _running(self) -> list[Relay]:
        return [member.relay for member in self.members.values() if member.runs]

    def crash(self, place: str) -> None:
        member = self.members.get(place)
        if member is None or not member.runs:
            return
        self.world.crash(member.relay)
        self.members[place] = member._replace(runs=False)
        if member.static and not member.relay._member.consumer.assignment():
            # one that is joining just now would do so behind its successor, and shut it out: no dead process does that
            self.world.close(member.relay)

    def die(self, step: str, after: bool) -> None:
        """Some steps of each relay, of which the first that comes to `step` of a turn does no more, or nothing after it."""
        real = getattr(Turn, step)

        def last(turn: Turn) -> None:
            if after:
                real(turn)
            raise Death

        with patch.object(Turn, step, last):
            for place, member in [each for each in self.members.items() if each[1].runs]:
                self.oracle.run()
                try:
                    for _ in range(6):
                        member.relay.step(0.005)
                except Death:
                    self.crash(place)

    def close(self, place: str) -> None:
        """As Ctrl-C does it; a static member's partitions wait for it, so it has to come again."""
        member = self.members.get(place)
        if member is None or not member.runs:
            return
        self.world.close(member.relay)
        del self.members[place]
        if member.static:
            self.start(place, True)

    def checkpoint(self) -> None:
        """As each relay does once a second."""
        self.clock.pass_unseen(1_001)

    # What befalls files

    def copy(self, place: str) -> None:
        """Keep the files as they are now."""
        if self._folder(place).exists():
            shutil.rmtree(self._folder(f"{place}.old"), ignore_errors=True)
            shutil.copytree(self._folder(place), self._folder(f"{place}.old"))

    def put_back(self, place: str) -> None:
        """Those that were kept, in place of what is there, while nobody uses it."""
        if self._is_down(place) and self._folder(f"{place}.old").exists():
            shutil.rmtree(self._folder(place), ignore_errors=True)
            shutil.copytree(self._folder(f"{place}.old"), self._folder(place))

    def harm(self, place: str, how: str, which: float) -> None:
        """All files gone, or one of them gone, cut, flipped, or as it was kept."""
        files = sorted(file for file in self._folder(place).rglob("*") if file.is_file())
        if not self._is_down(place) or not files:
            return
        file = files[int(which * len(files))]
        if how == "all":
            shutil.rmtree(self._folder(place))
        elif how == "gone":
            file.unlink()
        elif how == "older":
            kept = self._folder(f"{place}.old") / file.relative_to(self._folder(place))
            if kept.exists():
                shutil.copy(kept, file)
        elif data := file.read_bytes():
            at = int(which * 7919 * len(data)) % len(data)
            cut = how == "cut"
            file.write_bytes(data[:at] if cut else data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])

    def _folder(self, place: str) -> Path:
        return self.world.folder / place

    def _is_down(self, place: str) -> bool:
        return place not in self.members or not self.members[place].runs

    # A rest

    def rest(self) -> None:
        """Until all partitions have an owner, and nothing is left to do; then everything is compared."""
        self._all_there()
        until_s = time.monotonic() + PATIENCE_S
        quiet = 0
        while quiet < 4:  # the first finds nothing, a second has passed, what came near is loaded, that is delivered
            if time.monotonic() > until_s:
                self._restless()
            done = self._step() or not self._is_quiet()
            quiet = 0 if done else quiet + 1
            self.clock.pass_unseen(600 if quiet else 20)  # records that do not come are asked for again after 5 s
        self.oracle.now_ms = self.clock.wall_ms()
        news = self.reader.news()
        replies, letters = (news.pop(f"{self.world.topic}.{name}") for name in ("replies", "dead"))
        self.oracle.rest(news, replies, letters)
        self._counted()

    def _restless(self) -> None:
        told = f"{[state_of(relay) for relay in self._running()]}, of late {self.world.lost[-2:]}"
        raise AssertionError(f"no rest: {told}")

    def _all_there(self) -> None:
        for place, member in list(self.members.items()):
            if not member.runs and member.static:
                self.start(place, True)
            elif not member.runs:
                self._forget(place)
        if not self.members:
            self.start("one", True)

    def _is_quiet(self) -> bool:
        owners = [owner for relay in self._running() for owner in relay.owners.values()]
        if sorted(owner.number for owner in owners) != list(range(self.world.partitions)):
            return False
        ends = Counter(one.partition for one in self.oracle.requests.values())
        return all(
            owner.has_caught_up and owner.position >= ends[owner.number] and not owner.waiting and not owner.letters
            for owner in owners
        )

    def _counted(self) -> None:
        """Promise 6: what is pending, by topic and hour, and the messages of each id."""
        spans = [span for relay in self._running() for each in relay.owners.values() for span in each.store.spans()]
        counted: Counter[str] = Counter()
        for span in spans:
            counted.update(span.pending)
        pending = Counter(one.target for one in self.oracle.pending())
        assert +counted == pending, f"promise 6: {counted} are counted as pending, of {pending}"
        for one in spans:
            self._span(one, spans)
        for relay in self._running():
            for owner in relay.owners.values():
                self._next(owner)
        self._shown()

    def _span(self, one: Span, spans: list[Span]) -> None:
        """Finer spans of its time count for it too; coarser ones, and that of the past, may hold some of it."""
        whole = range(one.start_ms // HOUR_MS, one.end_ms // HOUR_MS)
        there = sum(count for (hour, _), count in self.oracle.pending_by_hour().items() if hour in whole)
        inside = [each for each in spans if one.start_ms <= each.start_ms and each.end_ms <= one.end_ms]
        around = [each for each in spans if each.start_ms <= one.start_ms and one.end_ms <= each.end_ms]
        past = [each for each in spans if each.start_ms == 0]
        least, more = (sum(sum(each.pending.values()) for each in some) for some in (inside, [*around, *past]))
        fits = one.start_ms == 0 or least <= there <= least + more
        assert fits, f"promise 6: {least} and up to {more} more are told of {there} from {one.start_ms} to {one.end_ms}"

    def _next(self, owner: Owner) -> None:
        """The next due time is exact of what is near; of what is not, nothing is due before it."""
        due_ms = [one.due_ms for one in self.oracle.pending() if one.partition == owner.number]
        told = owner.next_due_ms()
        if told is not None and not self.oracle.is_waited_for:
            assert told == min(due_ms, default=None), f"promise 6: {told} is said to be next, of {sorted(due_ms)}"
        elif told is None and due_ms:
            bound = owner.store.next_due
            assert bound is not None, "promise 6: nothing is said to be next"
            assert bound <= min(due_ms), f"promise 6: {bound} is said to be next, of {sorted(due_ms)}"

    def _shown(self) -> None:
        for id in {one.id for one in self.oracle.messages() if one.id}:
            found = [one for relay in self._running() for one in relay.show(id) if one.state == "pending"]
            asked = [one for one in self.oracle.pending() if one.id == id]
            place = f"{self.world.topic}-{{0.partition}}-{{0.offset}}".format
            assert sorted(one.origin for one in found) == sorted(map(place, asked)), f"promise 6: {id} shows {found}"


def smaller(steps: list[Step], fails: Callable[[list[Step]], Any]) -> list[Step]:
    """A part of the steps that still fails, from which no single one can be left out."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            left = steps[:at] + steps[at + size :]
            if fails(left):
                steps = left
            else:
                at += size
        size //= 2
    return steps

"""What both logs say of a partition's messages, read beside any relay; and `ls`, `due` and `show` made of it. No relay need
run or show its numbers, and no file of one is read.

    1. bounds    where the input ends is looked up before where TOPIC.settled does
    2. settled   all of TOPIC.settled is read
    3. asked     the commands that nobody has answered
    4. messages  the input's

Rule 1: everything is read from Kafka, as a new owner does (take_over.py).
Rule 2: by the order in 1, of the requests up to the input's end all are known that were settled until then. The other way
        round, what is delivered in between would look pending.
Rule 3: a cancel without an answer may come too late. So its message is pending, and `asked` says what was asked for.
Rule 4: what was moved on stands at its last copy, and nothing pending stands below what is swept (moves.py). Of what was
        moved on between the two look-ups of 1, the copy stands behind that end: it is read to there.
Rule 5: what was cut off TOPIC.settled is known through a snapshot that stands there (settlement.py); without one that can
        be read, the view is refused. If a relay cuts off what is being read, it is an error, and nothing is left out.
Rule 6: the commands read all partitions, one after the other, and print how far: what it costs is what the logs hold. Spans
        and series are those that a relay has on its pages.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import Message

from waterclock.clock import SystemClock
from waterclock.errors import ConnectionLost, UsageError, unstopped
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.kafka.settings import base_settings, from_file
from waterclock.relay.logs import Logs
from waterclock.relay.owner.context import Reading, in_silence
from waterclock.relay.statistics import MessageStatistics
from waterclock.relay.store import Payload, SpanLevel, State
from waterclock.relay.store.filing import past_ms
from waterclock.relay.store.spans import Edges, end_of
from waterclock.relay.watching.gathering import PendingSeries, SoonestSeries, cron_of
from waterclock.relay.watching.listing import Due, Messages, Overview
from waterclock.relay.watching.progress import Progress
from waterclock.relay.wire.letters import Command
from waterclock.relay.wire.request import Action, BadRequest, DelayRequest, Flag, request_in, request_of
from waterclock.relay.wire.settlement import NoSettlement, SettledOrigins, mark_of, record_of
from waterclock.relay.wire.topics import STARTS, Topics

log = logging.getLogger("waterclock.relay")
TOLD_EVERY: Final = 2_000  # records


class LogBounds(NamedTuple):
    """Of one partition: first offset and end of both logs; `mark` is that of the input in settlements."""

    number: int
    input: tuple[int, int]
    settled: tuple[int, int]
    mark: bytes


class SeenMessage(NamedTuple):
    """A message: where its request stood first, the record that it stands in now, what it asks for, and what became of it.
    `asked`: rule 3; None if nothing was."""

    origin: int
    message: Message
    request: DelayRequest
    state: State
    asked: Action | None


def bounds_of(admin: Admin, logs: Logs, topics: Topics) -> list[LogBounds]:
    """Step 1, of all partitions. UsageError if the topics are not a relay's."""
    there = admin.known((topics.input, topics.settled))  # a list of before may lack partitions that were added
    for topic in (topics.input, topics.settled):
        if topic not in there:
            raise UsageError(
                f"There is no topic {topic}: a relay makes {topics.input} and {topics.settled} when it starts. "
                "Name the topic that its requests are written to."
            )
    if there[topics.input] != there[topics.settled]:
        raise UsageError(
            f"{topics.input} and {topics.settled} differ in partitions: `waterclock relay` says the remedy."
        )
    with there_just_now():
        mark, numbers = mark_of(admin.topic_id(topics.input)), range(there[topics.input])
    inputs = [logs.bounds(topics.input, number) for number in numbers]  # rule 2: these first
    settled = [logs.bounds(topics.settled, number) for number in numbers]
    return [LogBounds(number, inputs[number], settled[number], mark) for number in numbers]


class View:
    """Of one partition; `reading` hears how far both logs are read. A byte is held for each record of the input."""

    def __init__(self, logs: Logs, topics: Topics, bounds: LogBounds, reading: Reading = in_silence) -> None:
        self._logs = logs
        self._topics = topics
        self._bounds = bounds
        self._reading = reading
        self._settled = SettledOrigins(bounds.mark, bounds.settled[0])

    def pending(self) -> Iterator[SeenMessage]:
        """What is pending, in the order of the input; ConnectionLost if the logs were cut off meanwhile."""
        return (seen for seen in self._messages(only_pending=True) if seen.state == State.PENDING)

    def of(self, id: bytes) -> Iterator[SeenMessage]:
        """All that bear an id, delivered or not, as far as the input goes back."""
        known = set[int]()
        for seen in self._messages(only_pending=False):
            if seen.request.id == id and seen.origin not in known:  # a message and its copies are one
                known.add(seen.origin)
                yield seen

    def _messages(self, only_pending: bool) -> Iterator[SeenMessage]:
        """Steps 2 to 4. `only_pending`: of what was moved on, nothing but its last copy."""
        (low, end), settled, asked = self._bounds.input, self._settled, dict[bytes, list[Command]]()
        try:
            self._read_settled()  # 2
            for origin, message, request in self._requests(max(low, settled.answered), end):  # 3
                if request.action is not Action.SCHEDULE and origin == message.offset():
                    asked.setdefault(request.id, []).append(Command(origin, request.action, request.id))
            start = max(low, settled.moves.swept) if only_pending else low  # rule 4
            for origin, message, request in self._requests(start, max(end, settled.moves.end)):  # 4
                if request.action is not Action.CANCEL and origin < end:
                    commands = asked.get(request.id, ()) if request.id else ()
                    # what was asked for first: a command is for what stands before it
                    action = next((each.action for each in commands if each.offset > origin), None)
                    yield SeenMessage(origin, message, request, settled.state(origin) or State.PENDING, action)
        except ConnectionLost as error:  # rule 5
            number, bounds = self._bounds.number, self._bounds
            for topic, (first, _) in ((self._topics.input, bounds.input), (self._topics.settled, bounds.settled)):
                if self._logs.bounds(topic, number)[0] > first:
                    raise ConnectionLost(
                        f"{topic}-{number} was cut off by a relay while it was read: call `pending` again, or run the "
                        "command again."
                    ) from error
            raise

    def _read_settled(self) -> None:
        """All that is known to be settled; what no relay wrote so is passed over, as a relay does."""
        topic, (low, end) = self._topics.settled, self._bounds.settled
        for message in self._read(topic, low, end):
            place = f"{topic}-{self._bounds.number}-{message.offset()}"
            try:
                self._settled.take(record_of(message.value() or b""))
            except NoSettlement as error:
                if error.later:
                    raise UsageError(
                        f"{place} is written by a later relay: {unstopped(error)}. Read it with that version."
                    ) from None
                log.warning("%s is no settlement, and is passed over: %s", place, error)
        if not self._settled.is_known:
            raise UsageError(
                f"{topic}-{self._bounds.number} begins at offset {low}, and no snapshot of what was settled before can be "
                "read: what is pending is not known from the logs. A relay that runs with --metrics knows it from its "
                "files: `waterclock relay ls --at HOST:PORT`."
            )

    def _requests(self, start: int, end: int) -> Iterator[tuple[int, Message, DelayRequest]]:
        """Origin, record and request from `start` on; a bad one is none, whether it has its dead letter or not."""
        for message in self._read(self._topics.input, start, end):
            offset = message.offset()
            try:
                if self._settled.moves.is_copy(offset):
                    origin, headers, timestamp_ms = self._settled.moves.asked(message)
                    yield origin, message, request_of(headers, timestamp_ms)
                else:
                    yield offset, message, request_in(message)
            except BadRequest:
                continue

    def _read(self, topic: str, start: int, end: int) -> Iterator[Message]:
        place = f"{topic}-{self._bounds.number}"
        for count, message in enumerate(self._logs.read(topic, self._bounds.number, start, end)):
            if not count % TOLD_EVERY:
                self._reading(place, message.offset() - start, end - start)
            yield message


_SLICE: Final = 10_000


def ls(arguments: Namespace, servers: str) -> Overview:
    """What is pending, and what of it recurs."""
    spans, soonest = _SpanCounts(SystemClock().wall_ms()), SoonestSeries()
    with _views(arguments, servers) as views:
        for place, view in views:
            for seen in view.pending():
                spans.add(seen.request.due_ms, seen.request.target)
                if seen.request.flags & Flag.SERIES:
                    soonest.add(place, [_series(seen)])
    recurring = soonest.statistics()
    return Overview(spans.counts(), [asdict(one) for one in recurring.series], recurring.more, [])


def due(arguments: Namespace, servers: str) -> Due:
    """What each partition has."""
    partitions: dict[int, dict[str, Any]] = {}
    with _views(arguments, servers) as views:
        for number, (_, view) in enumerate(views):
            count, first_ms = 0, None
            for seen in view.pending():
                count += 1
                first_ms = min(seen.request.due_ms, first_ms or seen.request.due_ms)
            partitions[number] = {"pending": count, "next_due_ms": first_ms, "caught_up": True}
    return Due(partitions, [])


def show(arguments: Namespace, servers: str) -> Messages:
    """The messages of an id."""
    found: list[MessageStatistics] = []
    with _views(arguments, servers) as views:
        for place, view in views:
            for seen in view.of(arguments.id.encode("utf-8", "surrogateescape")):
                request, is_pending = seen.request, seen.state == State.PENDING
                recurs = is_pending and request.flags & Flag.SERIES
                cron, zone = cron_of(_series(seen).payload) if recurs else (None, None)
                origin, state = f"{place}-{seen.origin}", seen.state.name.lower()
                found.append(MessageStatistics(origin, request.due_ms, request.target, state, cron, zone))
    return Messages([asdict(one) for one in sorted(found, key=lambda one: one.due_ms)], [])


def _series(seen: SeenMessage) -> PendingSeries:
    request, message = seen.request, seen.message
    payload = Payload(message.value(), message.key(), request.id, request.headers)
    return PendingSeries(request.due_ms, seen.origin, request.target, payload)


@contextmanager
def _views(arguments: Namespace, servers: str) -> Iterator[Iterator[tuple[str, View]]]:
    """Each partition's, by its name."""
    settings = base_settings(arguments.bootstrap or servers, from_file("--kafka-config", arguments.kafka_config))
    topics, clock = Topics.of(arguments.topic), SystemClock()
    admin = Admin(settings, starts=STARTS)
    logs, reading = Logs(settings), Progress(clock, arguments.json).reading
    try:
        bounds = bounds_of(admin, logs, topics)
        yield ((f"{topics.input}-{one.number}", View(logs, topics, one, reading)) for one in bounds)
    finally:
        logs.close()


class _SpanCounts:
    """Counts due times by the spans that a relay's files have now."""

    def __init__(self, now_ms: int) -> None:
        self._edges, self._past_ms = Edges.at(now_ms, now_ms), past_ms(now_ms, now_ms)
        self._counts = Counter[tuple[int, int, str]]()
        self._dues: dict[str, list[int]] = {}

    def add(self, due_ms: int, target: str) -> None:
        dues = self._dues.setdefault(target, [])
        dues.append(due_ms)
        if len(dues) == _SLICE:
            self._count(target)

    def counts(self) -> Counter[tuple[int, int, str]]:
        """From, to, topic -> how many."""
        for target in list(self._dues):
            self._count(target)
        return self._counts

    def _count(self, target: str) -> None:
        levels, starts = self._edges.places(np.array(self._dues.pop(target), "<i8"), self._past_ms)
        for (level, start_ms), count in Counter(zip(levels.tolist(), starts.tolist(), strict=True)).items():
            self._counts[start_ms, end_of(SpanLevel(level), start_ms), target] += count

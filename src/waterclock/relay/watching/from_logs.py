"""`ls`, `due` and `show` from both logs (view.py), beside any relay: no relay need run, or show its numbers.

Rule 1: all partitions are read, one after the other, and it is said how far: what it costs is what the logs hold.
Rule 2: spans and series are those that a relay has on its pages.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from waterclock.clock import SystemClock
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings, from_file
from waterclock.relay.logs import Logs
from waterclock.relay.statistics import MessageStatistics
from waterclock.relay.store import Payload, SpanLevel, State
from waterclock.relay.store.filing import past_ms
from waterclock.relay.store.spans import Edges, end_of
from waterclock.relay.watching.listing import Due, Messages, Overview
from waterclock.relay.watching.progress import Progress
from waterclock.relay.watching.recurring import PendingSeries, SoonestSeries, cron_of
from waterclock.relay.watching.view import SeenMessage, View, bounds_of
from waterclock.relay.wire.request import Flag
from waterclock.relay.wire.topics import Topics

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
    admin = Admin(settings)
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

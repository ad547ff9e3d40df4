"""What was committed last to a partition: the position of a capture, or whatever else its last record says."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import TopicPartition

from waterclock.cdc.position import Position
from waterclock.clock import Clock, SystemClock
from waterclock.kafka.client import PATIENCE_S, bounds, committed

_FIRST_LOOK = 64  # so many records from the end on: the last one nearly always lies there


def last_position(
    settings: Mapping[str, Any], state_topic: str, clock: Clock | None = None, patience_s: float = PATIENCE_S
) -> Position | None:
    """The position that was committed last; None if there is none yet. Errors as of `last_record`."""
    found = last_record(settings, TopicPartition(state_topic, 0), clock, patience_s)
    return None if found is None else Position.parsed(found)


def last_record(
    settings: Mapping[str, Any], place: TopicPartition, clock: Clock | None = None, patience_s: float = PATIENCE_S
) -> bytes | None:
    """The value of a partition's last committed record; None if it has none. EnvironmentMissing or ConnectionLost if nobody
    answers, or not all comes that was committed: a leader that was just elected may say that a partition ends earlier."""
    named = {**settings, "group.id": f"{place.topic}.reader"}  # the client wants one: nothing is committed under it
    partition = place.topic, place.partition
    low, end = bounds(named, partition, patience_s)
    read = partial(committed, named, partition, end=end, clock=clock or SystemClock(), patience_s=patience_s)
    found = deque(read(start=max(low, end - _FIRST_LOOK)), maxlen=1) or deque(read(start=low), maxlen=1)
    return found[0].value() if found else None

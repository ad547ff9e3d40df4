"""A relay's start, where Kafka is away: it is waited for, and that is said.

    1. reach     a broker that answers
    2. begin     the topics are made and looked at, the group is joined (relay.py)

Rule 1: a broker that does not answer, at 1 or at 2, is waited for, for `PATIENCE_S` in all. Then it is an error, with what
        to mend: a service that waits for ever for a wrong address would look well.
Rule 2: a refusal is an error at once: asking again is no use before a password or a right is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, EnvironmentMissing, WaterclockError
from waterclock.kafka.client import Client, Remedies
from waterclock.kafka.patience import Backoff
from waterclock.kafka.settings import READING

T = TypeVar("T")
PATIENCE_S: Final = 300.0
ATTEMPT_S: Final = 2.0
AGAIN_AFTER_S: Final = 0.5


def begun(
    settings: Mapping[str, Any],
    topic: str,
    begin: Callable[[], T],
    said: Callable[[WaterclockError], object],
    clock: Clock,
) -> T:
    """What `begin` makes, once there is a Kafka; `said` hears that it is away. EnvironmentMissing when patience is over."""
    backoff = Backoff((AGAIN_AFTER_S,), clock, PATIENCE_S)
    while True:
        try:
            _reach(settings, topic, clock)
            return begin()
        except (EnvironmentMissing, ConnectionLost) as error:
            if backoff.is_over:
                told = str(error).rstrip(".")
                raise EnvironmentMissing(f"{told}. It was waited for, for {PATIENCE_S:.0f} seconds.") from None
        servers = settings["bootstrap.servers"]
        said(ConnectionLost(f"Kafka at {servers} is away: it is waited for, for {PATIENCE_S:.0f} seconds at most."))
        backoff.sleep()


def _reach(settings: Mapping[str, Any], topic: str, clock: Clock) -> None:
    """Step 1."""
    reading = {**settings, **READING, "group.id": "unused"}
    client = Client(reading, min(ATTEMPT_S, PATIENCE_S), Remedies("--kafka-config", "--bootstrap"), clock)
    try:
        client.partitions([topic])
    finally:
        client.close()

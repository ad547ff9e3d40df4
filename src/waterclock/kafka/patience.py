"""The one loop that waits for Kafka: ask until there is an answer, until asking is no use, or until patience is over.

Rule 1: what is asked comes back within CALL_S or so: while a call to librdkafka lasts, Ctrl-C is not heard. A call that ran
    out of time is made again; librdkafka goes on with what it had begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from waterclock.clock import Clock

T = TypeVar("T")
CALL_S = 1.0
_AGAIN_AFTER_S = 0.1


def patiently(ask: Callable[[], T], no_use: Callable[[KafkaError], bool], patience_s: float, clock: Clock) -> T:
    """The answer to `ask`. KafkaException: the last one, of which `no_use` says that asking again is none, or which came
    when `patience_s` were over."""
    until_s = clock.monotonic_s() + patience_s
    while True:
        try:
            return ask()
        except KafkaException as raised:
            if no_use(raised.args[0]) or clock.monotonic_s() >= until_s:
                raise
        clock.sleep_s(_AGAIN_AFTER_S)

"""How long something is waited for, and how often it is tried again: one backoff, one loop. No Kafka client is loaded here.

Rule 1: what is asked comes back within CALL_S or so: while a call to librdkafka lasts, Ctrl-C is not heard. A call that ran
    out of time is made again; librdkafka goes on with what it had begun.
Rule 2: the pause grows while attempts fail in a row, and begins anew behind one that succeeded.
Rule 3: a wait that may be long is said when it begins: who looks at a command that is silent does not know for what.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from waterclock.clock import Clock

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

T = TypeVar("T")
log = logging.getLogger("waterclock.kafka")
CALL_S = 1.0
AGAIN_AFTER_S: Final = 0.1
SAID_FROM_S: Final = 5.0
RECONNECTING_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # between attempts at what was lost


class Backoff:
    """Pauses between attempts that fail in a row: the first of `pauses_s` behind the first one, the last of them for ever.
    `attempts`: how many failed; `patience_s`: for how long they go on. For one thread.

    >>> from waterclock.clock import ManualClock
    >>> backoff = Backoff((0.5, 2.0), ManualClock())
    >>> backoff.is_time, backoff.failed(), backoff.is_time, backoff.failed(), backoff.failed(), backoff.attempts
    (True, 0.5, False, 2.0, 2.0, 3)
    """

    def __init__(self, pauses_s: Sequence[float], clock: Clock, patience_s: float = math.inf) -> None:
        self._pauses_s = pauses_s
        self._clock = clock
        self._until_s = clock.monotonic_s() + patience_s
        self._next_ns = 0
        self.attempts = 0

    def failed(self) -> float:
        """Another attempt has failed; the seconds until the next one."""
        pause_s = self._pauses_s[min(self.attempts, len(self._pauses_s) - 1)]
        self._next_ns = self._clock.monotonic_ns() + int(pause_s * 1e9)
        self.attempts += 1
        return pause_s

    def sleep(self) -> None:
        """Another attempt has failed: the pause passes."""
        self._clock.sleep_s(self.failed())

    def succeeded(self) -> None:
        """The next one that fails is the first one again."""
        self.attempts = 0

    @property
    def is_time(self) -> bool:
        """Whether the pause is over."""
        return not self.attempts or self._clock.monotonic_ns() >= self._next_ns

    @property
    def is_over(self) -> bool:
        """Whether patience is over."""
        return self._clock.monotonic_s() >= self._until_s


def patiently(
    ask: Callable[[], T], no_use: Callable[[KafkaError], bool], patience_s: float, clock: Clock, servers: str = ""
) -> T:
    """The answer to `ask`. KafkaException: the last one, of which `no_use` says that asking again is none, or which came
    when `patience_s` were over. `servers`: whom rule 3 names."""
    from confluent_kafka import KafkaException

    from waterclock.kafka.errors import words_of

    backoff = Backoff((AGAIN_AFTER_S,), clock, patience_s)
    while True:
        try:
            return ask()
        except KafkaException as raised:
            if no_use(raised.args[0]) or backoff.is_over:
                raise
            if servers and not backoff.attempts and patience_s >= SAID_FROM_S:
                log.warning("waiting for Kafka at %s, for up to %.0f s: %s", servers, patience_s, words_of(raised))
        backoff.sleep()

"""Answers that wait for the store: about several changes, and about changes that it has not kept, or not yet.

    the change                                                      the answer
    was refused: too few brokers are in sync                        REQUEST_TIMED_OUT: as from Apache Kafka while too few
                                                                    controllers agree; its clients, Kafka Streams among
                                                                    them, try again
    was refused: by the disk                                        KAFKA_STORAGE_ERROR
    stands in the store, and waits for a follower that dropped out  after PATIENCE_S an error after which clients try again

What stands in the store cannot be taken back, and is done when the follower has it (replication/journal.py). That may
take for ever; its client need not know. As Apache Kafka's coordinators do after offsets.commit.timeout.ms, the broker
answers with an error after which clients try again, while fewer brokers are in sync than min.insync.replicas asks for.
The change may be made all the same, as after any request that timed out.

Rule 1: who waits for something else, such as the other members of a group, goes on waiting.
Rule 2: an answer that comes after that goes nowhere: `Request.send`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.replication.leader import Leader
    from waterclock.broker.wire.codec import Request


class Countdown:
    """Calls `answer()` once `settled` was called `count` times; at once if there is nothing to wait for."""

    def __init__(self, count: int, answer: Callable[[], None]) -> None:
        self._left, self._answer = count + 1, answer
        self.settled()

    def settled(self, done: bool = True) -> None:
        """One more of them is."""
        self._left -= 1
        if not self._left:
            self._answer()

    def after(self, failed: Callable[[], None]) -> Callable[[bool], None]:
        """A `then` for the store: `failed()` is called before this one is settled, if the disk refused it."""

        def then(done: bool) -> None:
            if not done:
                failed()
            self.settled()

        return then


Refusal = tuple[Error, str | None]
BY_THE_DISK: Final = Error.KAFKA_STORAGE_ERROR, "The change could not be kept."
BY_TOO_FEW: Final = (
    Error.REQUEST_TIMED_OUT,
    "Nothing was changed: fewer brokers are in sync than min.insync.replicas asks for. Try again when the follower is back",
)
PATIENCE_S: Final = 5.0  # Kafka's offsets.commit.timeout.ms
EVERY_S: Final = 1.0
COORDINATED: Final = dict.fromkeys((8, 22, 24, 25, 26, 28, 42, 47, 68), Error.COORDINATOR_NOT_AVAILABLE)
ADMINISTERED: Final = dict.fromkeys((19, 20, 27, 30, 31, 33, 37, 44, 51), Error.REQUEST_TIMED_OUT)
OFFSET_FETCH: Final = 9
LOADED: Final = frozenset({*COORDINATED, OFFSET_FETCH})  # what is said of the store: refused while it loads (leader.py)
ERRORS: Final = {**COORDINATED, **ADMINISTERED}  # of the APIs that are answered once the store has kept something


class NotKept:
    """Why the last change was not kept. Without a `leading` broker it was the disk."""

    def __init__(self, leading: Leader | None = None) -> None:
        self._leading = leading

    def why(self) -> Refusal:
        return BY_TOO_FEW if self._leading is not None and self._leading.refuses else BY_THE_DISK


class Overdue:
    """`too_few()` says whether fewer are in sync than there must be; `wake()` has `look` called every EVERY_S."""

    def __init__(self, too_few: Callable[[], bool], now_ns: Callable[[], int], wake: Callable[[], object]) -> None:
        self._too_few = too_few
        self._now_ns = now_ns
        self._wake = wake
        self._waiting: deque[tuple[int, Request]] = deque()  # the earliest first, some of them answered by now

    def __len__(self) -> int:
        return len(self._waiting)

    def watch(self, request: Request) -> None:
        """Its handler has not answered it yet."""
        waiting = self._waiting
        while waiting and not _waits(waiting[0][1]):
            waiting.popleft()
        waiting.append((self._now_ns() + int(PATIENCE_S * 1e9), request))
        self._wake()

    def look(self) -> float | None:
        """Answer those whose time is up; None if nobody waits any more (rhythm.py)."""
        waiting = [(due_ns, request) for due_ns, request in self._waiting if _waits(request)]
        now_ns = self._now_ns() if waiting and self._too_few() else -1
        for due_ns, request in waiting:
            if due_ns <= now_ns:
                refuse(request, ERRORS[request.key])
        self._waiting = deque((due_ns, request) for due_ns, request in waiting if due_ns > now_ns)
        return 0.0 if self._waiting else None


def _waits(request: Request) -> bool:
    return request.slot.parts is None and not request.slot.gone

"""Faults on purpose, for tests: an answer with an error, a lost acknowledgement, a slow network, a disk that hangs.

Rule 1: a fault is set from any thread and takes effect in the broker's: the next request that is read meets it.
Rule 2: of several faults that fit a request, the one that was set first meets it, alone.
Rule 3: if no fault is set, a request pays for one comparison with None.
Rule 4: a leader is frozen partition by partition; a follower only as a whole, for it flushes all that it copied together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from waterclock.broker.net.outgoing import AnswerPart, Slot
from waterclock.broker.wire.answers import refuse, topics_of
from waterclock.broker.wire.codec import KEYS, Request
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError, meant

if TYPE_CHECKING:
    from waterclock.broker.api.table import ApiTable
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.net.connection import Connection
    from waterclock.timer import AsyncTimer

T = TypeVar("T")
Act = Callable[["Connection", int, int, int, memoryview], Any]
OnAnswer = Callable[["HeldAnswer", list[AnswerPart]], Any]
PRODUCE: Final = 0
NAME_TOPICS: Final = {0, 1, 2, 3, 8, 9, 19, 20, 21, 23, 24, 28, 37, 47, 61}  # whose requests name topics


class Fault:
    """A fault that is set. `met`: how many requests met it. As a context manager it is cleared at the end.

    >>> from waterclock.broker import Broker, Error
    >>> with Broker() as broker, broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER) as fault:
    ...     fault.met
    0
    """

    def __init__(self, clear: Callable[[Fault], None], met: Callable[[], int] = lambda: 0) -> None:
        self._clear, self._met = clear, met

    @property
    def met(self) -> int:
        return self._met()

    def clear(self) -> None:
        """Take the fault away; a second time does nothing."""
        self._clear(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()


class Trap:
    """What a fault catches, and what it does with it; `left` None: any number of requests."""

    def __init__(self, key: int, topic: str | None, left: int | None, act: Act) -> None:
        self.key = key
        self.topic = topic
        self.left = left
        self.act = act
        self.met = 0


class HeldAnswer(Slot):
    """A request's slot whose answer is handed to `then(slot, parts)` instead of being sent."""

    __slots__ = ("then",)

    def answer(self, parts: list[AnswerPart]) -> None:
        self.then: OnAnswer
        self.then(self, parts)

    def send(self, parts: list[AnswerPart]) -> None:
        """Send the answer after all."""
        super().answer(parts)


class Faults:
    """`broker.faults`. `call` runs a deed in the broker's thread. `times` None: until the fault is cleared."""

    def __init__(
        self,
        call: Callable[[Callable[[], Any]], Any],
        table: ApiTable,
        topics: Topics,
        freezer: Freezer,
        timer: AsyncTimer,
    ) -> None:
        self._call = call
        self._table = table
        self._topics = topics
        self._freezer = freezer
        self._timer = timer
        self._traps: list[Trap] = []

    def answer(self, api: str, error: Error, *, times: int | None = 1, topic: str | None = None) -> Fault:
        """Answer the next `times` requests with `error`, and do nothing else about them.

        ValueError for an API or an error that Kafka does not have. An acks=0 Produce has no answer: its connection is
        closed, as Kafka does.
        """
        error = _known_error(error)

        def act(connection: Connection, key: int, version: int, correlation: int, data: memoryview) -> None:
            request = Request(key, version, correlation, Slot(connection), bytes(data))
            if key == PRODUCE and request.body.acks == 0:
                connection.close()
                return
            request.slot = connection.slot()
            refuse(request, error)

        return self._set(api, times, topic, act)

    def drop(self, api: str, *, after: bool = False, times: int | None = 1, topic: str | None = None) -> Fault:
        """Close the connection of the next `times` requests: before they are served, or `after`, instead of the answer.

        `after` makes a lost acknowledgement: the request is done and durable, and the client cannot know it.
        """

        def before(connection: Connection, *request: Any) -> None:
            connection.close()

        def serve(connection: Connection, *request: Any) -> None:
            if not self._serve_held(connection, request, lambda slot, parts: connection.close()):
                connection.close()  # no answer was due

        return self._set(api, times, topic, serve if after else before)

    def delay(self, api: str, ms: float, *, times: int | None = None, topic: str | None = None) -> Fault:
        """Serve requests at once, and send each answer `ms` milliseconds late, by the broker's clock.

        Answers go out in the order of the requests: those behind a late one in its connection wait for it.
        """
        if not ms >= 0:
            raise ValueError(f"ms must be 0 or more, got {ms!r}")

        def late(slot: HeldAnswer, parts: list[AnswerPart]) -> None:
            self._timer.call_later(ms / 1000, lambda: slot.send(parts))

        return self._set(api, times, topic, lambda connection, *request: self._serve_held(connection, request, late))

    def freeze(self, topic: str | None = None, partition: int | None = None) -> Fault:
        """Hold back a leader's flushes, as a disk that hangs, or what a follower copies, as a process that stands still.

        Of a leader: those of a partition, of all that the topic has, or of every topic there is. acks=1 is answered,
        acks=all waits, readers see nothing new. A follower takes no topic: it copies all of them together. It answers
        clients, fetches nothing, and leaves the in-sync set after replica.lag.time.max.ms. `thaw`, or clearing the fault,
        lets it go on; so does a promotion. UsageError for a topic or a partition that the broker does not have.
        """
        _check_topic_and(partition, topic)
        thaw = self._call(lambda: self._freezer.freeze(topic, partition))
        return Fault(lambda fault: self._call(thaw))

    def thaw(self, topic: str | None = None, partition: int | None = None) -> None:
        """Let what is frozen go on, without a topic all of it; UsageError as of `freeze`."""
        _check_topic_and(partition, topic)
        self._call(lambda: self._freezer.thaw(topic, partition))

    def clear(self) -> None:
        """Take all faults away."""

        def clear() -> None:
            self._traps.clear()
            self._table.intercept = None
            self._freezer.thaw(None, None)

        self._call(clear)

    # In the broker's thread

    def _set(self, api: str, times: int | None, topic: str | None, act: Act) -> Fault:
        if times is not None and times < 1:
            raise ValueError(f"times must be 1 or more, or None for any number, got {times!r}")
        trap = Trap(_known_api(api), topic, times, act)
        if topic is not None and trap.key not in NAME_TOPICS:
            raise ValueError(f"topic={topic!r}: a request of {api} names no topic; leave `topic` out")

        def add() -> None:
            self._traps.append(trap)
            self._table.intercept = self._intercept

        self._call(add)
        return Fault(lambda fault: self._call(lambda: self._remove(trap)), lambda: trap.met)

    def _remove(self, trap: Trap) -> None:
        if trap in self._traps:
            self._traps.remove(trap)
        if not self._traps:
            self._table.intercept = None

    def _intercept(self, connection: Connection, key: int, version: int, correlation: int, data: memoryview) -> bool:
        for trap in self._traps:
            if trap.key == key and (trap.topic is None or trap.topic in self._named(connection, key, version, data)):
                trap.met += 1
                if trap.left is not None:
                    trap.left -= 1
                    if not trap.left:
                        self._remove(trap)
                trap.act(connection, key, version, correlation, data)
                return True
        return False

    def _named(self, connection: Connection, key: int, version: int, data: memoryview) -> set[str]:
        body = Request(key, version, 0, Slot(connection), bytes(data)).body
        by_id = self._topics.by_id
        named = [one if isinstance(one, str) else by_id.get(one) for one in topics_of(body)]
        return {one if isinstance(one, str) else one.name for one in named if one is not None}

    def _serve_held(self, connection: Connection, request: Any, then: OnAnswer) -> bool:
        """Serve a request whose answer goes to `then`; False if there will be no answer."""
        made = []

        def make(connection: Connection) -> Slot:
            made.append(slot := HeldAnswer(connection))
            slot.then = then
            return slot

        connection.make_slot = make
        try:
            self._table.serve(connection, *request)
        finally:
            connection.make_slot = Slot
        return bool(made)


def _check_topic_and(partition: int | None, topic: str | None) -> None:
    if topic is None and partition is not None:
        raise ValueError(f"partition={partition!r} needs its topic: freeze(topic, partition)")


def _known_api(api: str) -> int:
    if api in KEYS:
        return KEYS[api]
    hint = meant(str(api), KEYS, "take Kafka's name for it, such as 'Produce' or 'JoinGroup'")
    raise ValueError(f"api: Kafka has no {api!r}; {hint}")


def _known_error(error: Any) -> Error:
    try:
        return Error(error)
    except ValueError:
        raise ValueError(
            f"error: {error!r} is not one of waterclock.broker.Error, such as Error.NOT_COORDINATOR"
        ) from None


# What `freeze` holds still, in the broker's thread


class Freezer(Protocol):
    """A topic of None stands for everything. UsageError if the broker has no such topic or partition."""

    def freeze(self, topic: str | None, partition: int | None) -> Callable[[], None]:
        """Hold it still; what is returned ends that, and does nothing if it has ended already."""

    def thaw(self, topic: str | None, partition: int | None) -> None:
        """Let it go on, whoever froze it."""


class FlushFreezer:
    """Holds back a leader's flushes: acks=1 is answered, acks=all waits, readers see nothing new."""

    def __init__(self, topics: Topics, flusher: Flusher) -> None:
        self._topics, self._flusher = topics, flusher
        self._frozen: dict[Partition, None] = {}

    def freeze(self, topic: str | None, partition: int | None) -> Callable[[], None]:
        partitions = self._partitions(topic, partition)
        for one in partitions:
            self._frozen[one] = None
            self._flusher.freeze(one, True)
        return lambda: self._thaw(partitions)

    def thaw(self, topic: str | None, partition: int | None) -> None:
        self._thaw(list(self._frozen) if topic is None else self._partitions(topic, partition))

    def _thaw(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            if partition in self._frozen:
                del self._frozen[partition]
                if not partition.deleted:
                    self._flusher.freeze(partition, False)

    def _partitions(self, topic: str | None, number: int | None) -> list[Partition]:
        if topic is None:
            return list(self._topics.partitions())
        known = self._topics.by_name.get(topic)
        if known is None:
            raise UsageError(f"there is no topic {topic!r} to freeze: create it first, as with broker.create_topic")
        if number is None:
            return list(known.partitions)
        if not 0 <= number < len(known.partitions):
            raise UsageError(f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, got {number!r}")
        return [known.partitions[number]]


class CopyFreezer:
    """Holds back a follower's copying, as a process that stands still. `freeze(frozen)` does it."""

    def __init__(self, freeze: Callable[[bool], None]) -> None:
        self._freeze = freeze

    def freeze(self, topic: str | None, partition: int | None) -> Callable[[], None]:
        _refuse_topic(topic)
        self._freeze(True)
        return lambda: self._freeze(False)

    def thaw(self, topic: str | None, partition: int | None) -> None:
        _refuse_topic(topic)
        self._freeze(False)


def _refuse_topic(topic: str | None) -> None:
    if topic is not None:
        raise UsageError(
            f"a follower copies all topics together, {topic!r} too: call freeze() and thaw() without a topic"
        )

"""The files of a partition that another relay owns, kept as an owner keeps its own. Nothing is delivered, answered or
written to Kafka here.

    1. open      the partition's files, and hold them against both logs (replay.py)
    2. settle    what TOPIC.settled says up to where it ended then: a snapshot, and what came after it
    3. follow    both logs: the input is filed, what is settled is settled
    4. close     with a checkpoint: whoever takes the partition over here begins with these files (take_over.py)

Rule 1: the data position is how far the input is filed. The command position is what TOPIC.settled says: an owner's answer,
        and nobody else's. So a new owner of these files answers what the dead one did not.
Rule 2: what is settled before its message is filed is remembered, and the other way round: no order between the two logs
        is needed, but for copies (rule 3).
Rule 3: a record with the header of a copy is one only where TOPIC.settled names its offset. The two become visible in any
        order. It waits, and what stands behind it, until it is named, or a command position behind it is told: an owner
        that has gone on behind a copy had named it before.
Rule 4: nothing is loaded: what is near takes no memory here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import Message

from waterclock.relay.logs.logs import fingerprint_of
from waterclock.relay.owner.around import Around
from waterclock.relay.owner.extent import EACH
from waterclock.relay.owner.replay import Replay
from waterclock.relay.store import StoreDamaged, rows_of
from waterclock.relay.wire.columns import Requests, read
from waterclock.relay.wire.request import ORIGIN, headers_of

CHECKPOINT_NS: Final = 5_000_000_000
CHECKPOINT_BYTES: Final = 16 << 20  # of messages, since the last one: more at once would keep the disk for long
_DONE: Final = object()


class Follower:
    """Of one partition. `position`: the input is filed up to here; `settled_position`: so is TOPIC.settled. `held` are
    records that wait (rule 3).

    ConnectionLost, StoreDamaged, OSError or UsageError where it cannot begin; then nothing is held.
    """

    def __init__(self, around: Around, number: int) -> None:
        self._around, self.number = around, number
        self.store = around.open_store(number)
        try:
            self._open()
        except BaseException as error:
            self.close(error)
            raise

    def _open(self) -> None:
        """Step 1."""
        around, number, store = self._around, self.number, self.store
        settled = around.logs.bounds(around.topics.settled, number)
        input = around.logs.bounds(around.topics.input, number)
        self._replay = Replay(around, number, store, input, settled)
        self._replay.extent.begins(input[0], settled[0])
        self.settled_position, self._settle_to = self._replay.start, settled[1]
        self.position, self._fingerprint = store.data_position, store.fingerprint
        self.is_settled, self._reached = False, 0
        self.held: list[Message] = []
        self._doubtful = -1  # the offset of the first of these
        self._steps: Iterator[None] | None = None  # of a checkpoint that is being written
        self._changed, self._bytes, self.has_work = False, 0, True
        self._checkpointed_ns = around.clock.monotonic_ns()
        self.settle_reached(self.settled_position)

    def close(self, error: BaseException | None = None) -> None:
        """Let go of the files; those that are damaged are set aside."""
        try:
            if isinstance(error, StoreDamaged):
                with suppress(OSError):  # where not even that can be, the damage is found again
                    self.store.set_aside(str(error), self._around.begins(self.number))
        finally:
            self.store.close()

    # What comes

    def settle(self, message: Message) -> int:
        """Take in a record of TOPIC.settled; how many records of the input that let go on."""
        self._replay.apply(message)
        self.settled_position, self._changed = message.offset() + 1, True
        self.settle_reached(self.settled_position)
        return self._file() if self.held and self._is_decided(self._doubtful) else 0

    def settle_reached(self, offset: int) -> None:
        """TOPIC.settled was read up to here. Step 2 ends where it ended when that began."""
        if not self.is_settled and offset >= self._settle_to:
            self._replay.look_behind()
            self.is_settled = True

    def file(self, messages: Sequence[Message]) -> int:
        """File records of the input, in their order; how many were new."""
        self.held += messages
        return 0 if self._doubtful >= 0 and not self._is_decided(self._doubtful) else self._file()

    def reached(self, offset: int) -> None:
        """It is said that the input was read up to here: for who asks how far behind this is."""
        self._reached = max(self._reached, offset)

    def behind(self, end: int) -> int:
        """How many offsets of the input are to be filed, where it ends there."""
        return max(0, end - (self.position if self.held else max(self.position, self._reached)))

    def _file(self) -> int:
        news = read(self.held, self.position, self._replay.extent.moves)
        self._doubtful = self._first_doubtful(news)
        if self._doubtful >= 0:
            before = [message for message in self.held if message.offset() < self._doubtful]
            news = read(before, self.position, self._replay.extent.moves)
        self._append(news)
        self.held = [message for message in self.held if message.offset() >= self._doubtful >= 0]
        return news.looked_at

    def _append(self, news: Requests) -> None:
        if news.last is None:
            return
        rows = rows_of(news.dues, news.origins)
        rows["flags"] = news.flags
        self.store.append(rows, news.blobs, news.targets)
        self.position, self._fingerprint, self._changed = news.last.offset() + 1, fingerprint_of(news.last), True
        size = sum(map(len, news.blobs)) + EACH * news.looked_at
        self._replay.extent.volume.grow(self.position, size)
        self._bytes += size

    def _first_doubtful(self, news: Requests) -> int:
        """Rule 3; -1 where there is none."""
        return next((message.offset() for message, _ in news.bad if self._is_doubtful(message)), -1)

    def _is_doubtful(self, message: Message) -> bool:
        named = any(name == ORIGIN for name, _ in headers_of(message) or ())
        return named and not self._is_decided(message.offset())

    def _is_decided(self, offset: int) -> bool:
        return self._replay.answered > offset or self._replay.extent.moves.is_copy(offset)

    # Now and then

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written, or the files are being tidied."""
        return self._steps is not None or self.has_work

    def keep_up(self, low: int, settled_low: int) -> bool:
        """Begin a checkpoint where it is time, or go on with it by a step; both logs begin there. True where there was
        one."""
        now_ns = self._around.clock.monotonic_ns()
        is_time = now_ns - self._checkpointed_ns >= CHECKPOINT_NS or self._bytes >= CHECKPOINT_BYTES
        if self._steps is None and is_time:
            self._checkpointed_ns, self.has_work = now_ns, True
            self._replay.extent.begins(low, settled_low)
            self._steps = self._checkpoint() if self._changed else None
        if self._steps is None:
            return False
        if next(self._steps, _DONE) is _DONE:
            self._steps = None
        return True

    def tidy(self) -> None:
        """A few milliseconds of work on the files."""
        self.has_work = self.store.tidy()

    def _checkpoint(self) -> Iterator[None]:
        extent = self._replay.extent
        extent.answered, self._changed, self._bytes = self._replay.answered, False, 0
        self.store.notes = extent.notes()
        return self.store.checkpoint_steps(self.position, self._fingerprint, self.settled_position)

    def checkpoint(self) -> None:
        """What was filed and settled so far outlasts a crash. Step 4. OSError where the disk refuses it."""
        for steps in (self._steps or (), self._checkpoint() if self._changed else ()):
            for _ in steps:
                pass
        self._steps = None

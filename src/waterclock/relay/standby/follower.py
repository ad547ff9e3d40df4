"""The files of a partition that another relay owns, kept as an owner keeps its own. Nothing is delivered, answered or
written to Kafka here.

    1. open      the partition's files (standby.py), and hold them against both logs (take_over.py)
    2. settle    what TOPIC.settled says up to where it ended then: a snapshot, and what came after it
    3. follow    both logs: the input is filed, what is settled is settled
    4. close     with a checkpoint: whoever takes the partition over here begins with these files (take_over.py)

Rule 1: the data position is how far the input is filed. The command position is what TOPIC.settled says: an owner's answer,
        and nobody else's. So a new owner of these files answers what the dead one did not.
Rule 2: what is settled before its message is filed is remembered, and the other way round: no order between the two logs
        is needed, but for copies (rule 3).
Rule 3: a record with the header of a copy is one only if TOPIC.settled names its offset. The two become visible in any
        order. It waits, and what stands behind it, until it is named, or a command position behind it is known: an owner
        that has gone on behind a copy had named it before.
Rule 4: nothing is loaded: what is near takes no memory here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import Message

from waterclock.relay.logs import fingerprint_of
from waterclock.relay.owner.context import Context
from waterclock.relay.owner.log_span import EACH
from waterclock.relay.owner.take_over import Replay
from waterclock.relay.store import PartitionStore, StoreDamaged, rows_of
from waterclock.relay.store.checkpoints import Checkpoints
from waterclock.relay.wire.moves import read
from waterclock.relay.wire.request import ORIGIN, headers_of

CHECKPOINT_NS: Final = 5_000_000_000
CHECKPOINT_BYTES: Final = 16 << 20  # of messages, since the last one: more at once would keep the disk for long


class StandbyFollower:
    """The files of one partition. `position`: the input is filed up to here; `settled_position`: so is TOPIC.settled.
    `held` are records that wait (rule 3).

    ConnectionLost, StoreDamaged, OSError or UsageError if it cannot begin; then nothing is held, and `store` is closed.
    """

    def __init__(self, context: Context, number: int, store: PartitionStore) -> None:
        self._context, self.number, self.store = context, number, store
        try:
            self._open()
        except BaseException as error:
            self.close(error)
            raise

    def _open(self) -> None:
        """Step 1."""
        context, number, store = self._context, self.number, self.store
        settled = context.logs.bounds(context.topics.settled, number)
        input = context.logs.bounds(context.topics.input, number)
        self._replay = Replay(context, number, store, input, settled)
        self._replay.log_span.begins(input[0], settled[0])
        self.settled_position, self._settle_to = self._replay.start, settled[1]
        self.position, self._fingerprint = store.data_position, store.fingerprint
        self.is_settled, self._reached = False, 0
        self.held: list[Message] = []
        self._doubtful = -1  # the offset of the first of these
        self._bytes, self.has_work = 0, True  # of messages, since the last checkpoint
        self.checkpoints = Checkpoints(self._checkpoint, CHECKPOINT_NS, context.clock)
        self.settle_reached(self.settled_position)

    def close(self, error: BaseException | None = None) -> None:
        """Let go of the files; those that are damaged are set aside."""
        try:
            if isinstance(error, StoreDamaged):
                with suppress(OSError):  # if not even that can be, the damage is found again
                    self.store.set_aside(str(error), self._context.begins(self.number))
        finally:
            self.store.close()

    # What comes

    def settle(self, message: Message) -> None:
        """Take in a record of TOPIC.settled, and what it lets go on of the input."""
        self._replay.apply(message)
        self.settled_position = message.offset() + 1
        self.checkpoints.is_changed = True
        self.settle_reached(self.settled_position)
        if self.held and self._is_decided(self._doubtful):
            self._file()

    def settle_reached(self, offset: int) -> None:
        """TOPIC.settled was read up to here. Step 2 ends where it ended when that began."""
        if not self.is_settled and offset >= self._settle_to:
            self._replay.look_behind()
            self.is_settled = True

    def file(self, messages: Sequence[Message]) -> None:
        """File records of the input, in their order."""
        self.held += messages
        if self._doubtful < 0 or self._is_decided(self._doubtful):
            self._file()

    def reached(self, offset: int) -> None:
        """librdkafka says that the input was read up to here; `behind` counts from there."""
        self._reached = max(self._reached, offset)

    def behind(self, end: int) -> int:
        """How many offsets of the input are to be filed, if it ends there."""
        return max(0, end - (self.position if self.held else max(self.position, self._reached)))

    def _file(self) -> None:
        moves = self._replay.log_span.moves
        news = read(self.held, self.position, moves)
        bad = (message for message, _ in news.bad if any(name == ORIGIN for name, _ in headers_of(message) or ()))
        self._doubtful = next((one.offset() for one in bad if not self._is_decided(one.offset())), -1)  # rule 3
        if self._doubtful >= 0:
            before = [message for message in self.held if message.offset() < self._doubtful]
            news = read(before, self.position, moves)
        if news.last is not None:
            rows = rows_of(news.dues, news.origins)
            rows["flags"] = news.flags
            self.store.append(rows, news.blobs, news.targets)
            self.position = news.last.offset() + 1
            self._fingerprint = fingerprint_of(news.last)
            self.checkpoints.is_changed = True
            size = sum(map(len, news.blobs)) + EACH * news.looked_at
            self._replay.log_span.volume.grow(self.position, size)
            self._bytes += size
        self.held = [message for message in self.held if message.offset() >= self._doubtful >= 0]

    def _is_decided(self, offset: int) -> bool:
        return self._replay.answered > offset or self._replay.log_span.moves.is_copy(offset)

    # Now and then

    def keep_up(self, low: int, settled_low: int) -> bool:
        """Begin a checkpoint if it is time, or go on with it by a step; both logs begin there. True if there was one."""
        is_time = self.checkpoints.is_time or self._bytes >= CHECKPOINT_BYTES
        if not self.checkpoints.is_under_way and is_time:
            self.has_work = True
            self._replay.log_span.begins(low, settled_low)
            self.checkpoints.begin()
        is_one = self.checkpoints.is_under_way
        self.checkpoints.step()
        return is_one

    def tidy(self) -> None:
        """A few milliseconds of work on the files."""
        self.has_work = self.store.tidy()

    def _checkpoint(self) -> Iterator[None]:
        log_span = self._replay.log_span
        log_span.answered = self._replay.answered
        self._bytes = 0
        self.store.notes = log_span.notes()
        return self.store.checkpoint_steps(self.position, self._fingerprint, self.settled_position)

    def checkpoint(self) -> None:
        """Step 4. Write down what was filed and settled so far, so that it outlasts a crash. OSError if the disk refuses
        it."""
        self.checkpoints.finish()

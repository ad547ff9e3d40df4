"""A partition's files, held against both logs, and brought up to what TOPIC.settled says: an owner's, or a follower's.

Rule 1: files are of these logs if the input goes on to their position or beyond it, and the last record filed is the one
        that stands there, or stands there no more. Others are set aside, and everything is filed anew.
Rule 2: to settle again is the same. So a snapshot may be of any moment, and who reads on may begin earlier than need be.
Rule 3: where TOPIC.settled was cut off, a snapshot has to cover what was before.
Rule 4: where the input goes on to the files' position, and TOPIC.settled ends before theirs, settlements are lost: the
        files are the last that know of them. Nobody starts.
Rule 5: an input that was cut off up to the files' position, or beyond it, says nothing against them: they are the last copy
        of what is pending before it. They are kept and used, and what is in neither is said, with its numbers.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from confluent_kafka import Message

from waterclock.errors import UsageError
from waterclock.relay.logs import fingerprint_of, offset_of
from waterclock.relay.owner.context import Context
from waterclock.relay.owner.log_span import LogSpan
from waterclock.relay.store import PartitionStore
from waterclock.relay.wire.settlement import Assembly, Move, NoSettlement, Settlement, SnapshotPart, record_of, restore

log = logging.getLogger("waterclock.relay")


class Replay:
    """Of one partition. `input` and `settled` are the first offset and the end of both logs. `log_span` is what is known of
    them, `answered` the command position, -1 if none is known, and `is_new` whether the files are empty."""

    def __init__(
        self, context: Context, number: int, store: PartitionStore, input: tuple[int, int], settled: tuple[int, int]
    ) -> None:
        self._context, self._number = context, number
        self._store = store
        self._input, self._settled = input, settled
        self._snapshots = Assembly()
        low, _ = input
        self._refuse_lost()
        if (why := self._why_not()) is not None:
            store.set_aside(why, low)
        self.is_new = not store.data_position
        self._filed_to = store.data_position
        if self.is_new:
            store.begin(low)
            store.checkpoint(low, None, 0)  # from now on files without a manifest are none of ours
        elif store.data_position < low:
            store.skip_to(low)
        self._covered_from = store.settled_position  # TOPIC.settled is known from here on, and what was before too
        self.log_span = LogSpan.of(store.notes)
        self.answered = self.log_span.answered

    @property
    def _name(self) -> str:
        return self._context.place_of(self._number)

    def _refuse_lost(self) -> None:
        """Rule 4."""
        filed, known = self._store.data_position, self._store.settled_position
        (_, end), (_, settled_end) = self._input, self._settled
        if filed and filed <= end and known > settled_end:
            raise UsageError(
                f"{self._context.topics.settled} does not hold what was settled: its partition {self._number} ends at "
                f"offset {settled_end}, and the files know it up to {known}. It was made again, or cut. All that still "
                f"stands in {self._name} would be delivered once more; to have that, start with another --group."
            )

    def _why_not(self) -> str | None:
        """Why the files are not of these logs; None if they are, or if there are none. Rule 1."""
        store, (low, end) = self._store, self._input
        if store.data_position > end:
            return (
                f"they hold {self._name} up to offset {store.data_position}, and it ends at {end} now: it lost its end"
            )
        if store.fingerprint is None or (offset := offset_of(store.fingerprint)) < low:
            return None
        record = self._context.logs.record(self._context.topics.input, self._number, offset)
        if record is None or fingerprint_of(record) != store.fingerprint:
            return f"the record at offset {offset} of {self._context.topics.input} is not the one that was filed"
        return None

    @property
    def start(self) -> int:
        """TOPIC.settled is read from here on: all of it if the files do not know the command position."""
        return self._settled[0] if self.answered < 0 else max(self._settled[0], self._store.settled_position)

    def look_behind(self) -> None:
        """Whether all is known of what was cut off: UsageError if it is not. Rule 3."""
        low, _ = self._settled
        if self._covered_from < low:
            raise UsageError(
                f"{self._context.topics.settled}-{self._number} begins at offset {low}, and no snapshot of what was "
                f"settled before can be read. All that still stands in {self._name} would be delivered once more; to have "
                f"that, start with another --topic. Or give the relay the folder that it had (--folder)."
            )
        self._say_what_is_gone()

    def _say_what_is_gone(self) -> None:
        """Rule 5. What was moved on before it was cut off is not gone."""
        store, (low, _), filed_to = self._store, self._input, self._filed_to
        if self.log_span.moves.swept >= low:
            return
        if alone := store.last_copies(low):
            log.warning(
                "%s begins at offset %d: somebody deleted what was before. Of the %d messages that are pending, %d stand "
                "in %s and nowhere else. They are delivered from there: keep that folder",
                self._name, low, store.pending, alone, store.folder,
            )  # fmt: skip
        if self.is_new and low:
            log.warning("%s begins at offset %d: nothing is known of what was before", self._name, low)
        elif filed_to < low:
            log.warning(
                "%s begins at offset %d, and the files hold it up to %d: what stood at the %d offsets between, and was not "
                "delivered by another relay, is lost", self._name, low, filed_to, low - filed_to,
            )  # fmt: skip

    def apply(self, message: Message) -> None:
        """Take in one record of TOPIC.settled; what is none of ours is passed over, and that is said."""
        place = f"{self._context.topics.settled}-{self._number}-{message.offset()}"
        value = message.value() or b""
        try:
            record = record_of(value)
        except NoSettlement as error:
            if error.later:
                raise UsageError(f"{place} is written by a later relay: {error}. Start that version.") from None
            log.warning("%s is no settlement, and is passed over: %s", place, error)
            return
        is_ours = record.mark == self._context.mark
        if not is_ours:
            log.warning("%s is of an earlier topic %s, and is passed over", place, self._context.topics.input)
        if isinstance(record, SnapshotPart):
            self._take(record, is_ours)
        elif is_ours:
            self._settle(record, len(value))
            self.answered = max(self.answered, record.command_position)

    def _settle(self, record: Settlement | Move, size: int) -> None:
        if isinstance(record, Move):
            self.log_span.moved(record)
        elif len(record.origins):
            self.log_span.unsaved += size
            with suppress(OSError):  # it is settled all the same; the owner hears of such a disk, and says so
                self._store.settle(record.origins, record.state)

    def _take(self, part: SnapshotPart, is_ours: bool) -> None:
        """Take in a part of a snapshot, and with the last one, the snapshot, if what it covers is not known otherwise. That
        of an earlier topic says that nothing of this one was cut off."""
        snapshot = self._snapshots.take(part)
        if snapshot is None:
            return
        if is_ours:
            self.log_span.moves.note(snapshot.swept, snapshot.stretches)
            self.log_span.snapshotted(snapshot.replay_from, sum(map(len, snapshot.chunks.values())))
            if self._covered_from < self._settled[0]:
                restore(self._store, snapshot)
            self.answered = max(self.answered, snapshot.command_position)
        if snapshot.replay_from >= self._settled[0]:
            self._covered_from = max(self._covered_from, snapshot.replay_from)

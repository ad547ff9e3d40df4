"""The warm standby: a relay keeps the files of the partitions that others own, so that it can go on with them at once.

Rule 1: what this relay owns, or is being given, is not followed: its files are the owner's, and are locked.
Rule 2: following yields to owning. If nothing is due within `QUIET_MS`, a step takes `QUIET_NS`; else it takes `BUSY_NS`
        in `EACH_NS`. The relay has one thread, and what is due in it is worth more than what may be due in it some day.
Rule 3: whatever goes wrong with a partition that is followed, its follower is let go, that is logged, and another one
        begins after a pause that grows. Nothing of it ends the relay, or an owner: the logs have it all.
Rule 4: the disk is for the owners first. With less than `RESERVE` free, nothing is filed here; and if an owner's files
        were refused, those that are kept here are removed, and not begun again for `AGAIN_NS`: what they hold is in the
        log, and Kafka is asked whether it is. What is a last copy, or may be one, stays.
Rule 5: a follower that falls behind where a log was cut off begins anew with what is left: a snapshot says what it missed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from math import inf
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from waterclock.errors import ConnectionLost, WaterclockError
from waterclock.kafka import Partition
from waterclock.kafka.errors import words_of
from waterclock.kafka.patience import Backoff
from waterclock.outside import futures, shutil
from waterclock.relay.logs import Logs, TailConsumer
from waterclock.relay.owner.context import Context
from waterclock.relay.owner.owner import Owner
from waterclock.relay.standby.follower import StandbyFollower
from waterclock.relay.statistics import StandbyStatistics
from waterclock.relay.store import PartitionStore, StoreDamaged

log = logging.getLogger("waterclock.relay")
QUIET_MS: Final = 50
QUIET_NS: Final = 20_000_000
BUSY_NS: Final = 5_000_000
EACH_NS: Final = 50_000_000
TAKEN: Final = 2_000  # records taken from the client at once
TOGETHER: Final = 500  # of one partition filed at once: 3 ms
MOST_HELD: Final = 5_000  # records of one partition that wait
PATIENCE_S: Final = 2.0
OPENING_S: Final = 0.005  # between two looks whether files are open
NEARLY: Final = 2_000  # requests: ten milliseconds of filing
RESERVE: Final = 1 << 30  # bytes, or a twentieth of the disk
AGAIN_NS: Final = 600_000_000_000
_LOOK_NS: Final = 1_000_000_000  # at the disk
_SAID_EVERY_NS: Final = 60_000_000_000
_PAUSES_S: Final = (1.0, 5.0, 20.0, 60.0)
_PASSING: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


@dataclass(slots=True)
class _Failure:
    """A partition whose follower failed, and why; the next one begins when its pause is over."""

    backoff: Backoff
    why: str


class Standby:
    """For one relay: `numbers` are the partitions that it follows while it does not own them, `owners` those that it
    owns. It begins once `is_ready`."""

    def __init__(self, context: Context, numbers: Iterable[int], owners: Mapping[int, Owner]) -> None:
        self._context = context
        self._numbers = frozenset(numbers)
        self._owners = owners
        self.followers: dict[int, StandbyFollower] = {}
        self._pool = futures.ThreadPoolExecutor(1, "opening")
        self._opening: dict[int, futures.Future[PartitionStore]] = {}  # what is followed next
        self.is_ready = False
        self._tails = TailConsumer(context.settings)
        self._queue: deque[Message] = deque()
        self._failed: dict[int, _Failure] = {}
        now_ns = context.clock.monotonic_ns()
        self._next_ns = now_ns  # the next step while owners have something to do
        self._look_ns = self._say_ns = now_ns  # the next look at the disk; when it is said again that it is nearly full
        self._again_ns = now_ns  # nothing is followed before
        self._has_room, self._has_more = True, False
        self._logs: Logs | None = None

    def step(self, mine: Collection[int]) -> int:
        """Do a little, if this is the moment; how many records were dealt with. `mine`: rule 1."""
        wanted = self._numbers.difference(mine)
        if not self.is_ready or not (wanted or self.followers):
            return 0
        now_ns, is_quiet = self._context.clock.monotonic_ns(), self._is_quiet()
        if now_ns < self._next_ns and not is_quiet:
            return 0
        self._next_ns = now_ns + EACH_NS
        if not self._is_roomy(now_ns):
            self._has_more = False
            for number in tuple(self._opening):  # nobody takes it: each look would be for nothing
                self.let_go(number)
            return 0
        self._begin(wanted)
        done = self._hear(now_ns + (QUIET_NS if is_quiet else BUSY_NS))
        self._keep_up(is_quiet)
        return done

    def has_read_up(self, number: int, nearly: bool = True) -> bool:
        """Whether a partition's files have nearly all that the input has, or at least what was settled at their opening."""
        follower, bounds = self.followers.get(number), self._tails.bounds((self._context.topics.input, number))
        if follower is None or not follower.is_settled:
            return False
        return not nearly or (bounds is not None and follower.behind(bounds[1]) < NEARLY)

    def is_as_far_as_can_be(self) -> bool:
        """Whether each partition has been read up, but for those that cannot be had."""
        return not self._has_room or all(each in self._failed or self.has_read_up(each) for each in self._numbers)

    def wait_s(self) -> float:
        """How long there is nothing to do; it may be for ever."""
        if not self._has_more:
            return OPENING_S if self._opening else inf
        is_quiet = self._is_quiet()
        return 0.0 if is_quiet else max(0.0, (self._next_ns - self._context.clock.monotonic_ns()) / 1e9)

    def hand_over(self, number: int) -> PartitionStore | None:
        """Follow a partition no more: it is to be owned here. Its files, all of them written down: to open them anew takes
        the longer the more was ever filed. None if there are none, or the disk refuses: then that is read again."""
        if (opening := self._opening.pop(number, None)) is not None:
            with suppress(WaterclockError, OSError):  # who is to own it opens it, and hears of that
                return opening.result()
        follower = self._forget(number)
        if follower is None:
            return None
        try:
            follower.checkpoint()
        except (StoreDamaged, OSError) as error:
            log.warning("%s: what was filed last is filed again: %s", self._context.place_of(number), error)
            follower.close(error)
            return None
        return follower.store

    def let_go(self, number: int, checkpoint: bool = True, damage: StoreDamaged | None = None) -> None:
        """Follow a partition no more. What cannot be written down is read again from the log."""
        if not checkpoint and number not in self._opening:
            if (follower := self._forget(number)) is not None:
                follower.close(damage)
        elif (store := self.hand_over(number)) is not None:
            store.close()

    def _forget(self, number: int) -> StandbyFollower | None:
        follower = self.followers.pop(number, None)
        self._failed.pop(number, None)
        if follower is not None:
            for place in self._places(number):
                self._tails.remove(place)
            self._queue = deque(message for message in self._queue if message.partition() != number)
        return follower

    @cached_property
    def _careful(self) -> Context:
        """With readers that wait `PATIENCE_S` for an answer: if a leader is away, owners are not kept for longer."""
        context = self._context
        self._logs = Logs(context.settings, context.machine, PATIENCE_S)
        return replace(context, logs=self._logs)

    def close(self, checkpoint: bool) -> None:
        """Follow nothing any more. Without a `checkpoint`, what was filed since the last one is filed again."""
        for number in (*self.followers, *self._opening):
            self.let_go(number, checkpoint)
        self._pool.shutdown()
        self._tails.close()
        if self._logs is not None:
            self._logs.close()

    def statistics(self) -> dict[int, StandbyStatistics]:
        """A record for each partition that is followed, or that was to be."""
        failed = {number: StandbyStatistics(why=failure.why) for number, failure in self._failed.items()}
        found = dict[int, StandbyStatistics]()
        for number, follower in self.followers.items():
            bounds = self._tails.bounds((self._context.topics.input, number))
            found[number] = StandbyStatistics(
                pending=follower.store.pending,
                position=follower.position,
                behind=None if bounds is None else follower.behind(bounds[1]),
                bytes_on_disk=follower.store.bytes_on_disk,
                why="" if self._has_room else "the disk is nearly full",
            )
        return dict(sorted({**failed, **found}.items()))

    def _is_quiet(self) -> bool:
        return all(owner.has_caught_up and owner.is_quiet(QUIET_MS) for owner in self._owners.values())

    # Which are followed

    def _places(self, number: int) -> tuple[Partition, Partition]:
        return (self._context.topics.settled, number), (self._context.topics.input, number)

    def _begin(self, wanted: frozenset[int]) -> None:
        """Have what is wanted followed, and nothing else; one begins at a time: it asks Kafka for this and that."""
        for number in (self.followers.keys() | self._opening.keys()) - wanted:
            self.let_go(number)
        for number in sorted(wanted - self.followers.keys()):
            failed = self._failed.get(number)
            if failed is None or failed.backoff.is_time:
                self._deal(number, self._follow)
                break

    def _follow(self, number: int) -> int:
        """Open the files beside what is delivered here: that is a tenth of a second for 100,000 messages. Then begin with
        TOPIC.settled; the input is read once that was."""
        if number not in self._opening:
            self._opening[number] = self._pool.submit(self._context.open_store, number)
            return 0
        if not self._opening[number].done():
            return 0
        store = self._opening.pop(number).result()
        self.followers[number] = follower = StandbyFollower(self._careful, number, store)
        settled, _ = self._places(number)
        self._tails.add(settled, follower.settled_position)
        self._read_input(follower)
        return 0

    def _read_input(self, follower: StandbyFollower) -> None:
        _, input = self._places(follower.number)
        if follower.is_settled and not self._tails.reads(input):
            self._tails.add(input, follower.position)

    def _deal(self, number: int, action: Callable[[int], int]) -> int:
        """Do something with a partition. Rule 3."""
        try:
            return action(number)
        except (WaterclockError, OSError, KafkaException) as error:
            failure = self._failed.get(number) or _Failure(Backoff(_PAUSES_S, self._context.clock), "")
            self.let_go(number, checkpoint=False, damage=error if isinstance(error, StoreDamaged) else None)
            pause_s, failure.why = failure.backoff.failed(), str(error)
            self._failed[number] = failure
            log.warning("%s: this relay does not stand by for it, and tries again in %g s: %s",
                        self._context.place_of(number), pause_s, failure.why)  # fmt: skip
        return 0

    # What comes

    def _hear(self, until_ns: int) -> int:
        done, clock, self._has_more = 0, self._context.clock, False
        if not self._queue:
            messages = self._tails.take(TAKEN)
            self._has_more = len(messages) >= TAKEN
            self._queue.extend(_by_place(messages))
        while self._queue:
            run = [self._queue.popleft()]  # with as many records of the same partition of the input as stand behind it
            is_of_input = run[0].error() is None and run[0].topic() == self._context.topics.input
            while is_of_input and self._queue and len(run) < TOGETHER and _are_beside(run[0], self._queue[0]):
                run.append(self._queue.popleft())
            if run[0].partition() in self.followers:
                done += self._deal(run[0].partition(), partial(self._take_in, run))
            if clock.monotonic_ns() >= until_ns:
                break
        self._has_more |= bool(self._queue)
        return done

    def _take_in(self, run: list[Message], number: int) -> int:
        follower, first, error = self.followers[number], run[0], run[0].error()
        is_of_input = first.topic() == self._context.topics.input
        if error is None:
            follower.file(run) if is_of_input else follower.settle(first)
        elif error.code() == KafkaError._PARTITION_EOF:
            (follower.reached if is_of_input else follower.settle_reached)(first.offset())
        elif error.code() not in _PASSING:
            raise ConnectionLost(f"{first.topic()}-{number} cannot be read: {words_of(error)}.")
        self._read_input(follower)
        self._tails.pause(self._places(number)[1], len(follower.held) > MOST_HELD)
        return len(run) if error is None else 0

    # Now and then

    def _keep_up(self, is_quiet: bool) -> None:
        """A step of each one's checkpoint, or of what else is better done early."""
        for number in list(self.followers):
            self._deal(number, partial(self._kept_up, is_quiet))
        busy = (one for one in self.followers.values() if one.checkpoints.is_under_way or one.has_work)
        if is_quiet and next(busy, None) is not None:
            self._has_more = True

    def _kept_up(self, is_quiet: bool, number: int) -> int:
        follower = self.followers[number]
        lows = [bounds[0] if (bounds := self._tails.bounds(place)) else 0 for place in self._places(number)]
        if follower.keep_up(*reversed(lows)):
            self._failed.pop(number, None)
        elif is_quiet and follower.has_work:
            follower.tidy()
        return 0

    # The disk

    def _is_roomy(self, now_ns: int) -> bool:
        """Rule 4."""
        if any(owner.disk.is_refusing for owner in self._owners.values()):
            self._make_room(now_ns)
        if now_ns >= self._look_ns:
            self._look_ns, self._has_room = now_ns + _LOOK_NS, True
            with suppress(OSError):  # whoever writes hears of it
                disk = shutil.disk_usage(self._context.folder)
                self._has_room = disk.free >= min(RESERVE, disk.total // 20)
            if not self._has_room and now_ns >= self._say_ns:
                self._say_ns = now_ns + _SAID_EVERY_NS
                log.warning("the disk of %s is nearly full: this relay stands by for nothing until it has room again",
                            self._context.folder)  # fmt: skip
        return self._has_room and now_ns >= self._again_ns

    def _make_room(self, now_ns: int) -> None:
        self._again_ns = now_ns + AGAIN_NS
        for follower in list(self.followers.values()):
            name, size = self._context.place_of(follower.number), follower.store.bytes_on_disk
            low = self._careful.begins(follower.number)
            if low is None or follower.store.last_copies(low):
                log.warning("the disk refuses what this relay owns. %s, with what it stands by for, %d bytes, stays: that "
                            "may stand nowhere else", follower.store.folder, size)  # fmt: skip
            else:
                log.warning("the disk refuses what this relay owns. The files of %s, which it stands by for, %d bytes, are "
                            "removed, and not made again for ten minutes: the log has it all", name, size)  # fmt: skip
                with suppress(OSError):  # what stays is as it was, or is nothing
                    follower.store.clear()
            self.let_go(follower.number, checkpoint=False)


def _by_place(messages: Iterable[Message]) -> Iterable[Message]:
    """Partition by partition, each in its order, without the ends that records stand behind: to file twenty records costs
    nearly as much as to file 500, and under a load they come in such pieces. The input comes before what was settled of it:
    so the topics' names stand."""
    found: dict[Partition, list[Message]] = {}
    for message in messages:
        run = found.setdefault((message.topic(), message.partition()), [])
        if run and run[-1].error() is not None and run[-1].error().code() == KafkaError._PARTITION_EOF:
            run.pop()
        run.append(message)
    return chain.from_iterable(found[place] for place in sorted(found))


def _are_beside(message: Message, next: Message) -> bool:
    """Whether the next one is a record of the same partition."""
    return next.error() is None and (message.topic(), message.partition()) == (next.topic(), next.partition())

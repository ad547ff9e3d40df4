"""The topics: their names, ids, settings, and the folders of their partitions.

Rule 1: a topic is kept in the store before anybody hears of it or can append to it, and its folders are made before
    that; so is a new partition. A folder that no topic owns is what a crash left of a creation or a deletion: it is
    removed at the start. So would be one with records that were acknowledged, if its topic were known too early.
Rule 2: a name is checked before it becomes a path.
Rule 3: a topic is there until its deletion is durable. Meanwhile nobody changes it: its row would come back.
Rule 4: folders are made and removed beside the loop (making.py). A topic grows once at a time: who asks for more meanwhile
    has its turn when it is known how that one ended.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import begin_partition, open_partition
from waterclock.broker.making import Maker
from waterclock.broker.namesakes import Namesakes
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.store import Store, Then
from waterclock.broker.worker import Do, at_once
from waterclock.disk import flush_folder, make_folder
from waterclock.errors import UsageError

TopicPartition: TypeAlias = "tuple[str, int]"  # by name and number
NAMESPACE: Final = "topic"
LONGEST_NAME: Final = 249
Opened: TypeAlias = "Callable[[str, int, str, TopicSettings], Partition]"
LEGAL: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{LONGEST_NAME}}}")
MOST_PARTITIONS: Final = 10_000
START: Final = 200  # of a name, in a folder's: with number and id it stays below the 255 bytes that a file system takes


def legal(name: str) -> bool:
    """Whether `name` can be a topic's: letters, digits, dot, underscore and hyphen, at most 249, and no path."""
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")


def why_illegal(name: str | None) -> str | None:
    """The sentence about a name that no topic can have; None for one that can.

    >>> why_illegal("../etc")
    "Topic name '../etc' is illegal: it may have letters, digits, '.', '_' and '-' only"
    """
    if name is not None and legal(name):
        return None
    if not name or name in (".", "..") or len(name) > LONGEST_NAME:
        return f"Topic name {name!r} is illegal: it has 1 to {LONGEST_NAME} characters, and is neither '.' nor '..'"
    return f"Topic name {name!r} is illegal: it may have letters, digits, '.', '_' and '-' only"


def _nobody_waits(done: bool) -> None:
    """For who does not ask how it ended."""


class Topic:
    """A topic with its partitions."""

    def __init__(self, name: str, topic_id: uuid.UUID, settings: TopicSettings) -> None:
        self.name, self.id, self.settings = name, topic_id, settings
        self.partitions: list[Partition] = []
        self.promised = 0  # partitions, those included that are not durable yet
        self.leaving = False  # its deletion is on its way to the store
        self.growths: deque[tuple[int, Then | None]] = deque()  # up to how many, and who waits; the first is at work

    @property
    def planned(self) -> int:
        """How many partitions it will have if nothing refuses."""
        return max([self.promised, *(upto for upto, _ in self.growths)])

    def kept(self) -> dict[str, object]:
        return {"id": str(self.id), "partitions": self.promised, "settings": self.settings.given}


class Topics:
    """All topics, by name and by id. `by_key` has both as they stand in requests, for produce and fetch.

    `do` does what is slow, as `Worker.do`.
    """

    def __init__(self, folder: str, settings: Settings, store: Store, do: Do = at_once) -> None:
        self.folder, self._settings, self._store = os.path.join(folder, "topics"), settings, store
        self._do, self._maker = do, Maker(self.folder, do)
        self.by_name: dict[str, Topic] = {}
        self.by_key: dict[bytes, list[Partition]] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}
        self._namesakes = Namesakes()
        self.making: dict[str, list[Then]] = {}  # topics that are not durable yet, and who waits for them
        make_folder(self.folder)
        self._open_all()

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self.by_name.values()))

    def namesake(self, name: str) -> str | None:
        """A topic whose name is `name` but for dots and underscores: names of metrics could not tell them apart."""
        return self._namesakes.of(name)

    def partitions(self) -> Iterator[Partition]:
        for topic in self:
            yield from topic.partitions

    def partition(self, name: str, number: int) -> Partition | None:
        """One partition, or None if the topic or the partition is not there."""
        topic = self.by_name.get(name)
        return topic.partitions[number] if topic is not None and 0 <= number < len(topic.partitions) else None

    def changeable(self, named: str | uuid.UUID) -> Topic | None:
        """The topic of that name or id that may be changed; None if there is none, or its deletion is on its way."""
        topic = self.by_name.get(named) if isinstance(named, str) else self.by_id.get(named)
        return None if topic is None or topic.leaving else topic

    def create(self, name: str, partitions: int, given: Mapping[str, str], then: Then | None = None) -> Topic:
        """A new topic, there once it is durable; its name must be legal and neither there nor being made.

        `then(False)`, and no topic, if the disk refuses it.
        """
        settings = TopicSettings(self._settings)
        settings.replace(given)
        topic = Topic(name, uuid.uuid4(), settings)
        self.making[name] = [] if then is None else [then]
        self._namesakes.add(name)
        self._maker.make(self._openings(topic, partitions), partial(self._keep, topic))
        return topic

    def _keep(self, topic: Topic, new: list[Partition] | None) -> None:
        if new is None:
            self._made(topic, False)
            return
        topic.partitions, topic.promised = new, len(new)
        self._store.put(NAMESPACE, topic.name, topic.kept(), partial(self._made, topic))

    def checked_create(self, name: str, partitions: int, given: Mapping[str, str], then: Then) -> Topic:
        """A new topic; UsageError if the name or the number is not good."""
        if not legal(name):
            raise UsageError(f"a topic's name has letters, digits, dot, _ and -, at most 249 of them, got {name!r}")
        if name in self.by_name or name in self.making:
            raise UsageError(f"there is a topic {name!r} already: choose another name, or delete it first")
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise UsageError(f"a topic has 1 to {MOST_PARTITIONS} partitions, got {partitions!r}")
        return self.create(name, partitions, given, then)

    def when_made(self, name: str, then: Then) -> None:
        """Call `then` once the topic that is being made is there, or cannot be."""
        self.making[name].append(then)

    def _made(self, topic: Topic, done: bool) -> None:
        if done:
            self._add(topic)
            self._tell_makers(topic.name, True)
        else:
            self._maker.remove(topic.partitions, partial(self._tell_makers, topic.name, False))

    def _tell_makers(self, name: str, done: bool) -> None:
        if name not in self.by_name:
            self._namesakes.remove(name)
        for then in self.making.pop(name):
            then(done)

    def grow(self, topic: Topic, partitions: int, then: Then | None = None) -> None:
        """More partitions for a topic, up to `partitions`; there once they are durable."""
        topic.growths.append((partitions, then))
        if len(topic.growths) == 1:
            self._grow(topic)

    def _grow(self, topic: Topic) -> None:
        self._maker.make(self._openings(topic, topic.growths[0][0]), partial(self._keep_grown, topic))

    def _keep_grown(self, topic: Topic, new: list[Partition] | None) -> None:
        if new is None or self.changeable(topic.name) is not topic:  # deleted: its row must not come back
            self._grown(topic, new or [], False)
            return
        topic.promised = len(topic.partitions) + len(new)
        self._store.put(NAMESPACE, topic.name, topic.kept(), partial(self._grown, topic, new))

    def _grown(self, topic: Topic, new: list[Partition], done: bool) -> None:
        if done:
            topic.partitions.extend(new)
            self._after_growth(topic, True)
        else:
            topic.promised = len(topic.partitions)
            self._maker.remove(new, partial(self._after_growth, topic, False))

    def _after_growth(self, topic: Topic, done: bool) -> None:
        """Tell who waits for the first growth, and begin the next."""
        _, then = topic.growths.popleft()
        if topic.growths:
            self._grow(topic)
        if then is not None:
            then(done)

    def configure(self, topic: Topic, given: Mapping[str, str], then: Then | None = None) -> None:
        """Other settings for a topic, until the store refuses; UsageError, and nothing changed, if one cannot be."""
        before = topic.settings.given
        topic.settings.replace(given)

        def configured(done: bool) -> None:
            if not done:
                topic.settings.replace(before)
            if then is not None:
                then(done)

        self._store.put(NAMESPACE, topic.name, topic.kept(), configured)

    def delete(self, topic: Topic, then: Then = _nobody_waits, gone: Callable[[], Any] | None = None) -> None:
        """Forget a topic once that is durable, which `gone` hears, and remove its files, which `then` hears.

        Readers that have a file open may finish.
        """
        topic.leaving = True

        def deleted(done: bool) -> None:
            topic.leaving = False
            if not done or self.by_id.get(topic.id) is not topic:  # one request may name it twice
                then(done)
                return
            self._forget(topic)
            if gone is not None:
                gone()
            self._maker.remove(topic.partitions, partial(then, True))

        self._store.put(NAMESPACE, topic.name, None, deleted)

    def drop(self, topic: Topic) -> None:
        """Forget a topic and remove its files, without a word to the store."""
        self._forget(topic)
        _remove(topic.partitions)

    def _forget(self, topic: Topic) -> None:
        del self.by_id[topic.id], self.by_key[topic.id.bytes]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name], self.by_key[topic.name.encode()]
            self._namesakes.remove(topic.name)
        for partition in topic.partitions:
            partition.deleted = True

    # As a follower: what the leader's store says

    def adopt(self, name: str, kept: dict[str, Any] | None) -> None:
        """A topic as another broker keeps it (`Topic.kept`), or with None its end. The store does not learn of it."""
        topic = self.by_name.get(name)
        if topic is not None and (kept is None or kept["id"] != str(topic.id)):
            self.drop(topic)
            topic = None
        if kept is None:
            return
        if topic is None:
            self._add(topic := Topic(name, uuid.UUID(kept["id"]), TopicSettings(self._settings)))
        topic.settings.replace(kept["settings"])
        topic.partitions.extend(self._opened(topic, kept["partitions"]))

    def replace(self, old: Partition, new: Partition) -> None:
        """A partition was opened anew."""
        self.by_name[old.topic].partitions[old.number] = new

    def _open_all(self) -> None:
        kept = self._store.load(NAMESPACE)
        if os.listdir(self.folder) and not self._store.load("cluster"):
            raise LogDamaged(
                f"there are logs in {self.folder}, and the store that knows them is new. Restore store.sqlite, or move "
                f"the logs away to begin without them"
            )
        for name, value in kept.items():
            topic = Topic(name, uuid.UUID(value["id"]), TopicSettings(self._settings, value["settings"]))
            topic.partitions = [self._open(topic, number) for number in range(value["partitions"])]
            topic.promised = value["partitions"]
            self._add(topic)
        owned = {os.path.basename(partition.folder) for partition in self.partitions()}
        for name in set(os.listdir(self.folder)) - owned:
            shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def _opened(self, topic: Topic, upto: int) -> list[Partition]:
        """The partitions from those promised so far up to `upto`, which are promised from now on."""
        new: list[Partition] = []
        try:
            for opening in self._openings(topic, upto):
                new.append(opening())  # noqa: PERF401 - what was opened before a failure is undone
            flush_folder(self.folder)
        except OSError:
            _remove(new)
            raise
        topic.promised = max(topic.promised, upto)
        return new

    def _openings(self, topic: Topic, upto: int) -> list[Callable[[], Partition]]:
        """What makes the partitions from those promised so far up to `upto`."""
        return [partial(self._open, topic, number, begin_partition) for number in range(topic.promised, upto)]

    def _open(self, topic: Topic, number: int, opened: Opened = open_partition) -> Partition:
        # the id keeps a topic apart from one of the same name whose removal a crash cut off, or of the same start
        folder = os.path.join(self.folder, f"{topic.name[:START]}-{number}.{topic.id.hex[:16]}")
        partition = opened(topic.name, number, folder, topic.settings)
        partition.do = self._do
        return partition

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = self.by_id[topic.id] = topic
        self._namesakes.add(topic.name)
        self.by_key[topic.name.encode()] = self.by_key[topic.id.bytes] = topic.partitions


def _remove(partitions: Iterable[Partition]) -> None:
    for partition in partitions:
        partition.deleted = True
        shutil.rmtree(partition.folder, ignore_errors=True)

"""The topics: their names, ids, settings, and the folders of their partitions.

Rule 1: a topic is kept in the store before anybody hears of it or can append to it, and its folders are made before
    that, each with its label (folder/making.py); so is a new partition. What a crash leaves of that,
    folder/inventory.py finds.
Rule 2: a name is checked before it becomes a path.
Rule 3: a topic is there until its deletion is durable. Meanwhile nobody changes it: its row would come back. The store
    keeps that it was deleted until its folders are gone.
Rule 4: folders are made and removed beside the loop (folder/making.py). A topic grows once at a time: who asks for more
    meanwhile has its turn when it is known how that one ended.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from waterclock.broker.folder.inventory import DELETED, NAMESPACE, TOPICS
from waterclock.broker.folder.making import FolderLabel, Maker, begin_label, folder_of, write_label
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import Said, begin_partition, open_partition
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.store import Entry, Store, Then
from waterclock.broker.worker import Do, at_once
from waterclock.disk import flush_folder, make_folder
from waterclock.errors import UsageError
from waterclock.outside import os, shutil, uuid

TopicPartition: TypeAlias = "tuple[str, int]"  # by name and number
LONGEST_NAME: Final = 249
OpenPartition: TypeAlias = "Callable[[str, int, str, TopicSettings, Said], Partition]"
LargestOffset: TypeAlias = (
    "Callable[[str, uuid.UUID, int, str], int]"  # topic, its id, number and folder of a partition
)
LEGAL: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{LONGEST_NAME}}}")
MOST_PARTITIONS: Final = 10_000
log = logging.getLogger("waterclock.broker")


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
    """Nobody wants to hear how it ended."""


def _nobody_asks() -> None:
    """Nobody wants to hear of settings."""


class Topic:
    """A topic with its partitions."""

    def __init__(self, name: str, topic_id: uuid.UUID, settings: TopicSettings) -> None:
        self.name = name
        self.id = topic_id
        self.settings = settings
        self.partitions: list[Partition] = []
        self.promised = 0  # partitions, those included that are not durable yet
        self.leaving: list[Then] | None = None  # its deletion is on its way to the store, and these wait for that
        self.growths: deque[tuple[int, list[Then]]] = deque()  # up to how many, and who waits; the first is at work

    @property
    def planned(self) -> int:
        """How many partitions it will have if nothing refuses."""
        return max([self.promised, *(upto for upto, _ in self.growths)])

    def kept(self) -> dict[str, object]:
        return {"id": str(self.id), "partitions": self.promised, "settings": self.settings.given}


class Namesakes:
    """Names of topics that are the same but for dots and underscores: names of metrics could not tell them apart.

    Looked up, not searched for: whoever asks for thousands of topics by name asks this for each.

    >>> taken = Namesakes()
    >>> taken.add("a.b"), taken.of("a_b"), taken.of("a.b"), taken.of("ab")
    (None, 'a.b', None, None)
    """

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        self._names.setdefault(name.replace(".", "_"), {})[name] = None

    def remove(self, name: str) -> None:
        plain = name.replace(".", "_")
        names = self._names.get(plain, {})
        names.pop(name, None)
        if not names:
            self._names.pop(plain, None)

    def of(self, name: str) -> str | None:
        """Another name like this one, if there is one."""
        return next((other for other in self._names.get(name.replace(".", "_"), ()) if other != name), None)


class TopicVisibility(Protocol):
    """Who may see which topics; `era` counts the changes of that."""

    @property
    def era(self) -> int: ...

    def sees(self, principal: str, host: str, topic: str) -> bool: ...


class Topics:
    """All topics, by name and by id. `by_key` has both as they stand in requests, for produce and fetch.

    `stop` is the mark of a clean stop in the folder. `do` does what is slow, as `Worker.do`. `named` knows the largest
    offset of a partition that is named outside of its folder; a follower's topics have none.
    """

    def __init__(
        self,
        folder: str,
        settings: Settings,
        store: Store,
        stop: CleanStop,
        do: Do = at_once,
        named: LargestOffset | None = None,
    ) -> None:
        self.folder = os.path.join(folder, TOPICS)
        self._settings = settings
        self._store = store
        self._stop = stop
        self._do = do
        self.maker = Maker(self.folder, do)
        self._named = named
        self.by_name: dict[str, Topic] = {}
        self.by_key: dict[bytes, list[Partition]] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}
        self.sight: TopicVisibility | None = None
        """Who may see which of them; None: everybody all."""
        self.configured: Callable[[], object] = _nobody_asks
        """Is called if a topic has other settings."""
        self.namesakes = Namesakes()
        self.making: dict[str, list[Then]] = {}  # topics that are not durable yet, and who waits for them
        make_folder(self.folder)
        for name, value in store.load(NAMESPACE).items():
            topic = Topic(name, uuid.UUID(value["id"]), TopicSettings(settings, value["settings"]))
            topic.promised = value["partitions"]
            topic.partitions = [self._open(topic, number) for number in range(topic.promised)]
            self._add(topic)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self.by_name.values()))

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
        return None if topic is None or topic.leaving is not None else topic

    def waiting_for(self, *named: str | uuid.UUID | None) -> list[Then] | None:
        """Who waits for a change, of the first topic named so, that is on its way to the disk; None if there is none."""
        for name in named:
            topic = self.by_name.get(name) if isinstance(name, str) else self.by_id.get(name) if name else None
            waiting = self.making.get(name) if topic is None and isinstance(name, str) else None
            if topic is not None:
                waiting = topic.growths[-1][1] if topic.leaving is None and topic.growths else topic.leaving
            if waiting is not None:
                return waiting
        return None

    def create(self, name: str, partitions: int, given: Mapping[str, str], then: Then | None = None) -> Topic:
        """A new topic, there once it is durable; its name must be legal and neither there nor being made.

        `then(False)`, and no topic, if the disk refuses it.
        """
        settings = TopicSettings(self._settings)
        settings.replace(given)
        topic = Topic(name, uuid.uuid4(), settings)
        self.making[name] = [] if then is None else [then]
        self.namesakes.add(name)

        def keep(new: list[Partition] | None) -> None:
            if new is None:
                self._made(topic, False)
                return
            topic.partitions, topic.promised = new, len(new)
            self._store.put(NAMESPACE, name, topic.kept(), partial(self._made, topic))

        self.maker.make(self._openings(topic, partitions), keep)
        return topic

    def checked_create(self, name: str, partitions: int, given: Mapping[str, str], then: Then) -> Topic:
        """A new topic; UsageError if the name or the number is not good."""
        if not legal(name):
            raise UsageError(f"a topic's name has letters, digits, dot, _ and -, at most 249 of them, got {name!r}")
        if name in self.by_name or name in self.making:
            raise UsageError(f"there is a topic {name!r} already: choose another name, or delete it first")
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise UsageError(f"a topic has 1 to {MOST_PARTITIONS} partitions, got {partitions!r}")
        if (no_room := self.maker.why_no_room(partitions)) is not None:
            raise UsageError(no_room)
        return self.create(name, partitions, given, then)

    def _made(self, topic: Topic, done: bool) -> None:
        if done:
            self._add(topic)
            self._tell_makers(topic.name, True)
        else:
            self.maker.remove(topic.partitions, partial(self._tell_makers, topic.name, False))

    def _tell_makers(self, name: str, done: bool) -> None:
        if name not in self.by_name:
            self.namesakes.remove(name)
        for then in self.making.pop(name):
            then(done)

    def grow(self, topic: Topic, partitions: int, then: Then | None = None) -> None:
        """More partitions for a topic, up to `partitions`; there once they are durable."""
        topic.growths.append((partitions, [] if then is None else [then]))
        if len(topic.growths) == 1:
            self._grow(topic)

    def _grow(self, topic: Topic) -> None:
        def keep(new: list[Partition] | None) -> None:
            if new is None or self.changeable(topic.name) is not topic:  # deleted: its row must not come back
                self._grown(topic, new or [], False)
                return
            topic.promised = len(topic.partitions) + len(new)
            self._store.put(NAMESPACE, topic.name, topic.kept(), partial(self._grown, topic, new))

        self.maker.make(self._openings(topic, topic.growths[0][0]), keep)

    def _grown(self, topic: Topic, new: list[Partition], done: bool) -> None:
        if done:
            topic.partitions.extend(new)
            self._after_growth(topic, True)
        else:
            topic.promised = len(topic.partitions)
            self.maker.remove(new, partial(self._after_growth, topic, False))

    def _after_growth(self, topic: Topic, done: bool) -> None:
        """Tell who waits for the first growth, and begin the next."""
        _, waiting = topic.growths.popleft()
        if topic.growths:
            self._grow(topic)
        for then in waiting:
            then(done)

    def configure(self, topic: Topic, given: Mapping[str, str], then: Then | None = None) -> None:
        """Other settings for a topic, until the store refuses; UsageError, and nothing changed, if one cannot be."""
        before = topic.settings.given
        topic.settings.replace(given)
        self.configured()

        def configured(done: bool) -> None:
            if not done:
                topic.settings.replace(before)
                if then is not None:
                    then(False)
                return
            # the first partition's folder has the settings too, before the client is answered
            first, label = topic.partitions[0], self._label(topic, 0, topic.promised)
            self._do(lambda: None if first.deleted else write_label(first.folder, label), labelled)

        def labelled(error: Exception | None) -> None:
            if error is not None:  # the store has them
                log.warning("the folder of the topic %s does not have its new settings: %s", topic.name, error)
            if then is not None:
                then(True)

        self._store.put(NAMESPACE, topic.name, topic.kept(), configured)

    def delete(self, topic: Topic, then: Then = _nobody_waits, gone: Callable[[], Any] | None = None) -> None:
        """Forget a topic once that is durable, which `gone` hears, and remove its files, which `then` hears.

        Readers that have a file open may finish.
        """
        topic.leaving = topic.leaving or []

        def deleted(done: bool) -> None:
            waiting, topic.leaving = topic.leaving or (), None
            for heard in waiting:
                heard(done)
            if not done or self.by_id.get(topic.id) is not topic:  # one request may name it twice
                then(done)
                return
            self._forget(topic)
            if gone is not None:
                gone()
            self.maker.remove(topic.partitions, removed, partial(then, True))

        def removed() -> None:
            self._store.put(DELETED, str(topic.id), None)
            then(True)

        deletion = Entry(DELETED, str(topic.id), topic.name)
        self._store.commit((Entry(NAMESPACE, topic.name, None), deletion), deleted)

    def drop(self, topic: Topic) -> None:
        """Forget a topic and remove its files, without a word to the store."""
        self._forget(topic)
        _remove(topic.partitions)

    def _forget(self, topic: Topic) -> None:
        del self.by_id[topic.id], self.by_key[topic.id.bytes]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name], self.by_key[topic.name.encode()]
            self.namesakes.remove(topic.name)
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
        new: list[Partition] = []
        try:
            for opening in self._openings(topic, kept["partitions"]):
                new.append(opening())  # noqa: PERF401 - what was opened before a failure is undone
            flush_folder(self.folder)
        except OSError:
            _remove(new)
            raise
        topic.promised = max(topic.promised, kept["partitions"])
        topic.partitions.extend(new)

    def replace(self, old: Partition, new: Partition) -> None:
        """A partition was opened anew."""
        self.by_name[old.topic].partitions[old.number] = new

    def _openings(self, topic: Topic, upto: int) -> list[Callable[[], Partition]]:
        """What makes the partitions from those promised so far up to `upto`."""
        return [partial(self._begin, topic, number, upto) for number in range(topic.promised, upto)]

    def _begin(self, topic: Topic, number: int, upto: int) -> Partition:
        """A new partition of a topic that will have `upto`, with its label."""
        partition = self._open(topic, number, begin_partition)
        begin_label(partition.folder, self._label(topic, number, upto))
        return partition

    def _label(self, topic: Topic, number: int, upto: int) -> FolderLabel:
        return FolderLabel(topic.name, topic.id, number, upto, topic.settings.given, self._store.number)

    def _open(self, topic: Topic, number: int, opened: OpenPartition = open_partition) -> Partition:
        folder = os.path.join(self.folder, folder_of(topic.name, topic.id, number))
        named = None if self._named is None else self._named(topic.name, topic.id, number, folder)
        said = Said(self._stop.take(folder), self._stop.ends.get(folder), named, self._stop.rebooted)
        partition = opened(topic.name, number, folder, topic.settings, said)
        partition.do = self._do
        return partition

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = self.by_id[topic.id] = topic
        self.namesakes.add(topic.name)
        self.by_key[topic.name.encode()] = self.by_key[topic.id.bytes] = topic.partitions


def _remove(partitions: Iterable[Partition]) -> None:
    for partition in partitions:
        partition.deleted = True
        shutil.rmtree(partition.folder, ignore_errors=True)

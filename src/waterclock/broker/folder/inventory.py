"""A broker's data folder at a start: whose it is, and what in it belongs to this folder and this moment.

1. It is taken for this process alone: nobody works on a file system without locks.
2. The store is opened. It names the last run: a number that each start draws anew.
3. The mark of a clean stop is read, and held against that run (log/clean_stop.py).
4. What the write-ahead log holds of that run is put back (log/replay.py).
5. The inventory: the topics that the store names are held against the folders that are there, and all logs are opened.
6. The mark is removed, and the write-ahead log; the new run's number is kept in the store. From here on logs may change.

    the store names the partition    its folder                          in step 5
    yes                              has a good label                    it is opened
    yes                              has no label, or a damaged one      it is opened, and gets a new one
    yes                              has the label of another one        nothing starts
    yes                              is not there                        nothing starts; a follower copies it anew
    no                               its topic's deletion is kept        what a crash left of that: removed
    no                               has a good label, and records       its topic, or that partition, is taken up again
    no                               anything else                       moved into `unknown/`

A start that is refused before step 6 leaves all that for the next one.

Rule 1: if the store is new, damaged or known to be older than the folder, nobody knows the last run.
Rule 2: a disk that does not take the new run's number costs no start: the last one goes on.
Rule 3: no folder is removed but on two words: its topic's deletion in the store, and its own name.
Rule 4: whatever is not in the first row is said.
Rule 5: a store that is new although there are logs, or whose last commit is before one that a label or `store.number` has
    seen, has lost what was committed since. What folders do not know is named: it is unknown from now on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from waterclock.broker.errors import DataInUse, LogDamaged, renaming, set_aside
from waterclock.broker.folder.identity import FILE, OTHER_FOLDER, remembered
from waterclock.broker.folder.making import FolderLabel, ending_of, folder_of, read_label, write_label
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.replay import replay
from waterclock.broker.log.segment import LABEL
from waterclock.broker.store import Entry, Store
from waterclock.broker.store.store import NAME
from waterclock.disk import FolderLock, WithoutLocks, boot, flush_folder, make_folder
from waterclock.errors import UsageError
from waterclock.outside import os, shutil, uuid

TOPICS: Final = "topics"
JOURNAL: Final = "journal"
NAMESPACE: Final = "topic"
DELETED: Final = "deleted"  # the ids of topics whose folders are being removed, and their names
UNKNOWN: Final = "groups, their offsets, transactions, and users and settings that clients made"
log = logging.getLogger("waterclock.broker")


@dataclass
class KnownTopic:
    """A topic as the store names it, and what is kept of it there."""

    name: str
    id: UUID
    kept: dict[str, Any]

    @property
    def folders(self) -> list[str]:
        """The names of its partitions' folders, in their order."""
        return [folder_of(self.name, self.id, number) for number in range(self.kept["partitions"])]

    def label(self, number: int, commit: int) -> FolderLabel:
        return FolderLabel(self.name, self.id, number, self.kept["partitions"], self.kept["settings"], commit)


class Inventory:
    """One start's: `take` brings the store and the folders in `data` together, before anything is opened.

    `stop` is the mark of a clean stop. `copied`: this is a follower, which gets from its leader what it lacks.
    """

    def __init__(self, data: str, store: Store, stop: CleanStop, copied: bool) -> None:
        self._data = data
        self._store = store
        self._stop = stop
        self._copied = copied
        self._folder = os.path.join(data, TOPICS)
        make_folder(self._folder)
        kept = store.load(NAMESPACE)
        self._known = {UUID(value["id"]): KnownTopic(name, UUID(value["id"]), value) for name, value in kept.items()}
        self._names = set(os.listdir(self._folder))

    def take(self) -> None:
        """All of it. LogDamaged if a partition's folder is gone, OSError."""
        owned = {name for topic in self._known.values() for name in topic.folders}
        labels = self._labels(sorted(owned & self._names))
        strange = self._finish_deletions(sorted(self._names - owned))
        strangers = self._labels(strange)
        found = {name: label for name, label in strangers.items() if label.folder == name}
        self._say_what_is_lost([*labels.values(), *found.values()])
        self._take_up_identity()
        taken = self._take_up(found)
        for name in strange:
            if name not in taken:
                self._set_aside(name)
        self._make_good(labels | strangers)

    def _labels(self, names: Iterable[str]) -> dict[str, FolderLabel]:
        """The labels of those folders that have a good one."""
        return {name: label for name in names if (label := read_label(self._path(name))) is not None}

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    # What a crash left

    def _finish_deletions(self, strange: list[str]) -> list[str]:
        """Remove what is left of topics that were deleted; the names of the other folders."""
        deleted = self._store.load(DELETED)
        labels = self._labels(strange).items()  # in their order: what happens hangs on no hash
        gone = [name for name, label in labels if str(label.id) in deleted and label.folder == name]
        for name in gone:
            shutil.rmtree(self._path(name), ignore_errors=True)
        if gone:
            flush_folder(self._folder)  # before the store forgets: a power cut would bring them back as somebody's
        if deleted and not any(os.path.lexists(self._path(name)) for name in gone):
            self._store.commit_at_once(*(Entry(DELETED, topic_id, None) for topic_id in deleted))
        return [name for name in strange if name not in gone]

    # What the store has lost

    def _say_what_is_lost(self, labels: list[FolderLabel]) -> None:
        path, latest = os.path.join(self._data, NAME), max([self._store.latest, *(label.commit for label in labels)])
        if self._store.new and (self._names or latest):
            self._say_what_a_pair_loses()
            log.error("%s is gone, or was never here: of what it held, %s are not known any more", path, UNKNOWN)
        elif self._store.number < latest:
            log.error(
                "%s is older than the files beside it: its last commit is number %d, and there was number %d. What was "
                "committed in between is not known any more, and as it was before: %s",
                path, self._store.number, latest, UNKNOWN,
            )  # fmt: skip

    def _say_what_a_pair_loses(self) -> None:
        """Who led is not guessed; a follower does not know how far it did what the journal says, and copies it anew."""
        journal = os.path.join(self._data, JOURNAL)
        if not os.path.exists(journal):
            return
        if self._copied:
            self._stop.take(journal)
            log.warning("%s is copied from the leader anew; it lies in %s", journal, set_aside(self._data, journal))
        else:
            raise LogDamaged(
                f"{os.path.join(self._data, NAME)} is gone, and this broker was one of two: it is not known whether it "
                f"led. Restore the file; or start with --follow HOST:PORT if the other one leads; or, if this one does, "
                f"move {journal} away"
            )

    def _take_up_identity(self) -> None:
        """The ids that the folder keeps beside the store: clients and the other broker know them."""
        ids, own = remembered(self._data), self._store.load("self").get("id")
        if own and ids.get("id") and ids["id"] != own:
            store, file = os.path.join(self._data, NAME), os.path.join(self._data, FILE)
            raise LogDamaged(
                f"{store} is the store of the broker {own}, and {file} says that this is the folder of the broker "
                f"{ids['id']}. Restore the one that is wrong; or {renaming(file)}, to go on with this store"
            )
        if ids and not self._store.load("cluster"):
            own = [Entry("self", name, ids[name]) for name in ("node", "id")]
            self._store.commit_at_once(Entry("cluster", "id", ids["cluster"]), *own)

    # Folders that the store does not name

    def _take_up(self, found: dict[str, FolderLabel]) -> set[str]:
        """Have the store name the topics of these labels that have records; the names of the folders that are theirs,
        those whose own label is damaged too."""
        taken: set[str] = set()
        for topic_id in dict.fromkeys(label.id for label in found.values()):
            labels = {name: label for name, label in found.items() if label.id == topic_id}
            topic = self._topic_of(topic_id, list(labels.values()))
            full = [label.number for name, label in labels.items() if has_records(self._path(name))]
            if topic is not None and full:
                topic.kept["partitions"] = max(topic.kept["partitions"], *(number + 1 for number in full))
                self._known[topic_id] = topic
                self._store.commit_at_once(Entry(NAMESPACE, topic.name, topic.kept))
                taken |= set(topic.folders)
                log.error(
                    "the topic %s was taken up again by its folders: the store named %s. It has %d partitions and the "
                    "settings %s", topic.name, "fewer of them" if len(full) < len(topic.folders) else "none of them",
                    topic.kept["partitions"], topic.kept["settings"],
                )  # fmt: skip
        return taken

    def _topic_of(self, topic_id: UUID, labels: list[FolderLabel]) -> KnownTopic | None:
        """The topic that the store names by that id, or that labels speak of; None if another one has its name."""
        latest = max(labels, key=lambda label: label.commit)
        if topic_id in self._known:
            return self._known[topic_id]
        if any(topic.name == latest.name for topic in self._known.values()):
            return None
        return KnownTopic(latest.name, topic_id, latest.kept())

    def _set_aside(self, name: str) -> None:
        if os.path.lexists(self._path(name)):
            place = set_aside(self._data, self._path(name))
            log.error(
                "%s is not known, and lies in %s from now on. To have it back, restore a %s that knows it, and the folder",
                self._path(name), place, NAME,
            )  # fmt: skip

    # Folders that it does

    def _make_good(self, labels: Mapping[str, FolderLabel]) -> None:
        """Every partition that the store names has its folder, with its label."""
        for topic in self._known.values():
            for number, name in enumerate(topic.folders):
                if name not in self._names:
                    self._miss(topic, number, self._path(name))
                label = labels.get(name)
                if label is not None and label.folder != name:
                    path = self._path(name)
                    raise LogDamaged(
                        f"{path} holds partition {label.number} of the topic {label.name}, by its topic.json: the folder "
                        f"was {label.folder}. Give it that name again, and restore the other one; or "
                        f"{renaming(os.path.join(path, LABEL))}, to take what is there for it"
                    )
                if label is None or label.commit > self._store.number:  # what was lost is said once
                    write_label(self._path(name), topic.label(number, self._store.number))

    def _miss(self, topic: KnownTopic, number: int, path: str) -> None:
        if not self._copied:
            raise LogDamaged(
                f"{path} is gone, the folder of partition {number} of the topic {topic.name}. Restore it; or make an empty "
                f"folder of that name, to go on without its records, behind the last offset that a group has committed"
            )
        log.error("%s is gone, and is copied from the leader anew", path)
        self._stop.take(path)
        os.mkdir(path)


def has_records(folder: str) -> bool:
    """Whether there is anything in a partition's log."""
    with suppress(OSError), os.scandir(folder) as entries:
        return any(entry.stat().st_size for entry in entries if entry.name.endswith((".log", ".swap")))
    return False


RUN: Final = "run"
BOOT: Final = "boot"


class DataFolder:
    """The data folder `folder`, up to step 5. What was opened is closed with `opened`, the lock last.

    `soon` is the store's. `copied`: this is a follower. DataInUse, UsageError, LogDamaged, OSError.
    """

    def __init__(self, folder: str, soon: Callable[..., Any], opened: ExitStack, *, copied: bool) -> None:
        self.lock = locked(folder)  # 1
        opened.callback(self.lock.release)
        self.store = opened.enter_context(closing(Store(folder, soon)))  # 2
        self._run = last_run(self.store)
        self.stop = CleanStop(folder, self._run, rebooted=is_rebooted(self.store))  # 3
        removed = {ending_of(UUID(one)) for one in self.store.load(DELETED)}
        self._replayed = replay(folder, self._run, stopped=self.stop.holds, removed=removed)  # 4
        Inventory(folder, self.store, self.stop, copied).take()  # 5

    @property
    def ahead(self) -> dict[str, int]:
        """The offset behind the last record of each partition in the write-ahead log, by the partitions' folders."""
        return self._replayed.ends

    def begin(self) -> int:
        """Step 6; the number of the run that begins. OSError."""
        self.stop.remove()
        self._replayed.finish()
        run = uuid.uuid4().int & 0xFFFF_FFFF_FFFF_FFFF
        try:
            self.store.commit_at_once(Entry("self", RUN, f"{run:016x}"), Entry("self", BOOT, boot()))
        except OSError as error:
            run = self._run or 0
            log.warning("%s. The run that begins goes by the number of the last one", error)
        self.stop.run = run
        return run


def last_run(store: Store) -> int | None:
    """The last run in the folder of this store, if that is known (rule 1)."""
    kept = store.load("self").get(RUN)
    if kept is None or store.damaged or store.number < store.latest:
        return None
    return int(kept, 16)


def is_rebooted(store: Store) -> bool:
    """Whether the machine may have lost, since the last run, what had not come to its disk."""
    kept = store.load("self").get(BOOT)
    return kept is None or kept != boot()


def locked(folder: str) -> FolderLock:
    """Take the folder for this process alone, until the lock that is returned is released."""
    lock = FolderLock(folder, "lock", WithoutLocks.REFUSE)
    try:
        make_folder(folder)
        lock.take()
    except BlockingIOError:
        raise DataInUse(f"another broker has {folder} open: stop it, or {OTHER_FOLDER}") from None
    except OSError as error:
        what = "" if error.filename in (None, folder) else f"{error.filename}: "
        raise UsageError(f"the data folder {folder} cannot be used: {what}{error.strerror}: {OTHER_FOLDER}") from None
    return lock

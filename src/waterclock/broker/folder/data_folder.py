"""A broker's data folder at a start: whose it is, and what in it belongs to this folder and this moment.

1. It is taken for this process alone: nobody works on a file system without locks.
2. The store is opened. It names the last run: a number that each start draws anew.
3. The mark of a clean stop is read, and held against that run (log/clean_stop.py).
4. What the write-ahead log holds of that run is put back (log/replay.py).
5. The store and the partitions' folders are brought together (inventory.py), and all logs are opened.
6. The mark is removed, and the write-ahead log; the new run's number is kept in the store. From here on logs may change.

A start that is refused before step 6 leaves all that for the next one.

Rule 1: if the store is new, damaged or known to be older than the folder, nobody knows the last run.
Rule 2: a disk that does not take the new run's number costs no start: the last one goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final
from uuid import uuid4

from waterclock.broker.errors import DataInUse
from waterclock.broker.folder.inventory import Inventory
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.replay import replay
from waterclock.broker.store import Entry, Store
from waterclock.disk import FolderLock, WithoutLocks, make_folder
from waterclock.errors import UsageError

RUN: Final = "run"
log = logging.getLogger("waterclock.broker")


class DataFolder:
    """The data folder `folder`, up to step 5. What was opened is closed with `opened`, the lock last.

    `soon` is the store's. `copied`: this is a follower. DataInUse, UsageError, LogDamaged, OSError.
    """

    def __init__(self, folder: str, soon: Callable[..., Any], opened: ExitStack, *, copied: bool) -> None:
        self.lock = locked(folder)  # 1
        opened.callback(self.lock.release)
        self.store = opened.enter_context(closing(Store(folder, soon)))  # 2
        self._run = last_run(self.store)
        self.stop = CleanStop(folder, self._run)  # 3
        self._replayed = replay(folder, self._run, stopped=self.stop.holds)  # 4
        Inventory(folder, self.store, self.stop, copied).take()  # 5

    @property
    def ahead(self) -> dict[str, int]:
        """The offset behind the last record of each partition in the write-ahead log, by the partitions' folders."""
        return self._replayed.ends

    def begin(self) -> int:
        """Step 6; the number of the run that begins. OSError."""
        self.stop.remove()
        self._replayed.finish()
        run = uuid4().int & 0xFFFF_FFFF_FFFF_FFFF
        try:
            self.store.commit_at_once(Entry("self", RUN, f"{run:016x}"))
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


def locked(folder: str) -> FolderLock:
    """Take the folder for this process alone, until the lock that is returned is released."""
    lock = FolderLock(folder, "lock", WithoutLocks.REFUSE)
    try:
        make_folder(folder)
        lock.take()
    except BlockingIOError:
        raise DataInUse(f"another broker has {folder} open: stop it, or choose another folder with --data") from None
    except OSError as error:
        what = "" if error.filename in (None, folder) else f"{error.filename}: "
        raise UsageError(
            f"the data folder {folder} cannot be used: {what}{error.strerror}. Choose another with --data"
        ) from None
    return lock

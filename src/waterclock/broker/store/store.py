"""What the coordinators must remember: topics, groups, offsets, transactions, credentials, settings.

The coordinators keep everything in memory and read the store once, at the start. It is a dictionary of namespaces of
keys that survives: what is written is JSON, in a file of checksummed frames (file.py).

Rule 1: all that is handed in while one commit runs is committed with the next, in its order: one flush for many.
Rule 2: the changes of one `commit` are there together or not at all.
Rule 3: `then(True)` is called in the loop's thread once they are durable, `then(False)` if the disk refused them, or the
    journal. After `close` nobody is called: what the store did at the very end is found at the next start.
Rule 4: what a coordinator changes in memory before that it takes back in `then(False)`. All that was handed in behind a
    refused commit is refused with it, since it may have been made of it. Their `then` are called without a break, the
    latest first: each finds memory as it had left it. What cannot be taken back (files, answers, sessions) waits for
    `then(True)`.
Rule 5: a flush that fails ends the process: what was to be refused may stand on the disk all the same.
Rule 6: what is damaged costs no more than itself. It is moved aside and said, with the commits that are missing, and the
    store is written anew without it. What can be known of them otherwise is found by folder/inventory.py.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from waterclock.broker.errors import set_aside, set_bytes_aside
from waterclock.broker.store.file import ALL_BUT, LastCommit, Row, StoreContents, StoreFile, apply, read
from waterclock.broker.store.sqlite import kept_by_sqlite
from waterclock.outside import open_file, os, queue, threading

NAME: Final = "store.log"
SQLITE: Final = "store.sqlite"  # of earlier versions
Then: TypeAlias = "Callable[[bool], Any]"
log = logging.getLogger("waterclock.broker")


class Entry(NamedTuple):
    """One key of a namespace gets a value; with None it goes."""

    namespace: str
    key: str
    value: Any


class Forget(NamedTuple):
    """Every namespace but those of `but` is emptied: what a replica begins with."""

    but: frozenset[str]


class StoreSnapshot(NamedTuple):
    """Everything that is kept, at its place in the order of the commits, is put into `into`."""

    into: list[Entry]


class RefusedByJournal(NamedTuple):
    """Of a commit that the journal refused: it fails, and those that are committed with it."""


Step: TypeAlias = "Entry | Forget | StoreSnapshot | RefusedByJournal"


class PendingCommit(NamedTuple):
    """A commit on its way; `era` counts the refusals that had been handed back when it was handed in."""

    era: int
    steps: list[Step]


class Store:
    """The store in `folder`. `soon(callable, *arguments)` hands a call to the loop's thread.

    LogDamaged if what an earlier version left cannot be read, OSError.
    """

    def __init__(self, folder: str, soon: Callable[..., Any]) -> None:
        self._soon = soon
        found = _found(folder)
        self.new, self.damaged = not found.number, bool(found.damages)
        """Whether nothing was kept before, and whether some of what was is damaged."""
        self._last = LastCommit(folder)
        self.latest = self._last.found
        """The number of the last commit that an earlier process made; 0 if that is not known."""
        self._contents = found.contents
        self._file = StoreFile(os.path.join(folder, NAME), found.number, found.end)
        self._mend(folder, found)
        self._writing = threading.Lock()  # one frame at a time: the thread's, or `commit_at_once`
        self._queue: queue.SimpleQueue[PendingCommit | None] = queue.SimpleQueue()
        self._waiting: deque[Then | None] = deque()  # whom to call for what is on its way, in its order
        self._era = 0
        self._closed = False
        self._journal: Callable[[list[Entry | Forget], Then | None], Then] | None = None
        self._thread = threading.Thread(target=self._commit_forever, name="store", daemon=True)
        self._thread.start()

    @property
    def number(self) -> int:
        """The number of the last frame: it rises with every commit or several, for as long as the folder lives."""
        return self._file.number

    def load(self, namespace: str) -> dict[str, Any]:
        """Everything in a namespace that was durable when this was asked."""
        return decoded(self._contents.get(namespace, {}).copy())

    def commit(self, changes: Iterable[Entry | Forget], then: Then | None = None) -> None:
        """Make the changes durable; returns at once."""
        steps: list[Any] = list(changes)
        if self._journal is not None:
            try:
                then = self._journal(steps, then)
            except OSError:  # the journal's disk refuses: so nothing is committed here either
                steps = [RefusedByJournal()]
        self._hand_in(steps, then)

    def _hand_in(self, steps: list[Step], then: Then | None) -> None:
        self._waiting.append(then)
        self._queue.put(PendingCommit(self._era, steps))

    def journal(self, commit: Callable[[list[Entry | Forget], Then | None], Then] | None) -> None:
        """From now on `commit` is handed every commit, and says whom to call at its end. None: there is no journal."""
        self._journal = commit

    def tell_all(self, then: Callable[[list[Entry] | None], Any]) -> None:
        """Call `then` with everything that is kept at this place in the order of the commits; None if that failed."""
        everything: list[Entry] = []
        self._hand_in([StoreSnapshot(everything)], lambda done: then(everything if done else None))

    def put(self, namespace: str, key: str, value: Any, then: Then | None = None) -> None:
        """One change; with None the key goes."""
        self.commit((Entry(namespace, key, value),), then)

    def commit_at_once(self, *changes: Entry) -> None:
        """Changes that are durable when this returns; OSError. For a start, which has nobody to serve yet."""
        rows = [_row(change) for change in changes]
        with self._writing:
            try:
                self._write(rows)
            except OSError as error:
                raise OSError(f"the store cannot be written: {error}") from error

    def close(self) -> None:
        """Commit what is left and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._closed = True
        self._file.close()
        self._last.close()

    @staticmethod
    def kept_at(folder: str, namespace: str) -> dict[str, Any]:
        """What a store that nobody has open holds in a namespace; nothing if there is none, or no such folder."""
        return decoded(_found(folder).contents.get(namespace, {}))

    # In its thread

    def _commit_forever(self) -> None:
        refused, last = -1, False  # the era of the last refusal: what is of it, or older, is refused by `_refused`
        while not last:
            several: list[PendingCommit] = []
            while not last and not (several and self._queue.empty()):
                commit = self._queue.get()
                last = commit is None  # the end was asked for behind what is here
                several += [commit] if commit is not None else []
            group = [each for each in several if each.era > refused]
            if group and self.commit_group(group):
                for _ in group:
                    self._soon(self._stored)
                if self._file.due:
                    with self._writing, suppress(OSError):  # then the old file stays, and grows
                        self._file.renew(self._contents)
            elif group:
                refused = group[-1].era
                self._soon(self._refused)

    def commit_group(self, group: list[PendingCommit]) -> bool:
        """Write what was handed in meanwhile as one frame; False if the disk refuses it, all of it."""
        rows: list[Row] = []
        with self._writing:
            try:
                for step in (step for commit in group for step in commit.steps):
                    if isinstance(step, StoreSnapshot):  # everything that is kept once the rows before it are done too
                        after = {namespace: values.copy() for namespace, values in self._contents.items()}
                        for row in rows:
                            apply(after, row)
                        for name in sorted(after):
                            step.into.extend(Entry(name, key, value) for key, value in decoded(after[name]).items())
                    else:
                        rows.append(_row(step))
                self._write(rows)
            except OSError:
                return False
        return True

    def _write(self, rows: list[Row]) -> None:
        if rows:
            self._file.append(rows)
            self._last.note(self._file.number)
        for row in rows:
            apply(self._contents, row)

    # In the loop's thread

    def _stored(self) -> None:
        then = self._waiting.popleft()
        if then is not None and not self._closed:
            then(True)

    def _refused(self) -> None:
        """Rule 4: refuse all that is on its way."""
        refused, self._waiting = self._waiting, deque()
        self._era += 1
        with ExitStack() as latest_first:
            for then in refused:
                if then is not None and not self._closed:
                    latest_first.callback(then, False)

    # At the start

    def _mend(self, folder: str, found: StoreContents) -> None:
        """Rule 6; and what a file of an earlier version held becomes this one's."""
        path, before, fresh = os.path.join(folder, NAME), os.path.join(folder, SQLITE), not self._file.size
        for damage in found.damages:
            missing = "a power cut leaves so what it interrupted; if there was none, what was committed last is missing"
            if damage.upto is not None:
                numbers = f"commits {damage.first} to {damage.upto - 1}"
                missing = f"{numbers} are missing, and what they changed is as it was before"
            aside = set_bytes_aside(folder, path, damage.at, damage.size)
            log.error(
                "%s is damaged: %d bytes from byte %d on are no commit, and lie in %s from now on: %s",
                path, damage.size, damage.at, aside, missing,
            )  # fmt: skip
        if found.damages or (found.number and fresh):
            self._file.renew(self._contents)
        if os.path.exists(before):
            how = "was taken over into" if fresh else "is of an earlier version, and was not read: there is"
            log.warning("%s %s %s; it lies in %s from now on", before, how, path, set_aside(folder, before))


def _found(folder: str) -> StoreContents:
    """What is kept in a folder, by this version or an earlier one."""
    with suppress(FileNotFoundError, NotADirectoryError), open_file(os.path.join(folder, NAME), "rb") as file:
        data = file.read()
        if data or not os.path.exists(os.path.join(folder, SQLITE)):
            return read(data)
    before = kept_by_sqlite(os.path.join(folder, SQLITE))
    return StoreContents(before, 1 if before else 0, 0, [])


def decoded(values: dict[str, bytes]) -> dict[str, Any]:
    """What the values say, by key and in its order."""
    keys = sorted(values)
    return dict(zip(keys, json.loads(b"[" + b",".join(values[key] for key in keys) + b"]"), strict=True))


def _row(step: Step) -> Row:
    if isinstance(step, Entry):
        value = None if step.value is None else json.dumps(step.value, separators=(",", ":")).encode()
        return Row(step.namespace, step.key, value)
    if isinstance(step, Forget):
        return Row(ALL_BUT, json.dumps(sorted(step.but)), None)
    raise OSError("the journal refused it")

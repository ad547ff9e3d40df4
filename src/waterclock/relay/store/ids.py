"""Ids of messages: from an id to the origins, due times and targets of the messages that bear it.

New ones wait in memory and in a log; when there are many, they become a run: a sorted file. Runs of like size are merged.

Rule 1: an entry says what was appended, not what became of it: that is asked of the ledger.
Rule 2: one that is not pending is forgotten `kept_ms` after it was due: at that moment for who asks, on the disk when its
    run is merged.
Rule 3: a merge goes in steps, between which everything else may go on. Its run counts when it is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.relay.store.files import CheckedFile, StoreFiles
from waterclock.relay.store.origins import Origins, State
from waterclock.relay.store.rows import Array
from waterclock.relay.store.runs import ENTRY, TARGET_BITS, IdRun, RunWriter, matches, merged

IN_MEMORY: Final = 262_144  # entries, 28 bytes each; then they become a run
FAN: Final = 6  # so many runs of like size are merged
TOGETHER: Final = 8_192  # ids looked up at once
_STATES: Final = {int(state): state for state in State}


class Found(NamedTuple):
    """A message that bears an id."""

    origin: int
    due: int  # ms since the epoch
    target: str
    state: State


class Ids:
    """The ids of one partition. `number` gives one to a new file; `pending` says which origins are."""

    def __init__(
        self, files: StoreFiles, kept_ms: int, number: Callable[[], int], pending: Callable[[Array], Array]
    ) -> None:
        self._files = files
        self._kept_ms = kept_ms
        self._number = number
        self._pending = pending
        self._log: CheckedFile | None = None
        # in memory: hashes (u8) and entries (ENTRY) in their order, each piece at most half as large as the one before
        self._pieces: list[tuple[Array, Array]] = []
        self._runs: list[IdRun] = []

    def write(self, ids: Array, rows: Array) -> Array:
        """Write the ids (HASH) of rows (ROW: due, origin, target) to the log. They are found after `keep` with what comes
        back, ENTRY rows. OSError if the disk refuses."""
        if sum(len(entries) for _, entries in self._pieces) >= IN_MEMORY:
            self._begin_run()
        entries = np.empty(len(ids), ENTRY)
        entries["hash"], entries["rest"], entries["origin"] = ids["hash"], ids["rest"], rows["origin"]
        entries["due_target"] = rows["due"] << TARGET_BITS | rows["target"]
        if self._log is None:
            self._log = CheckedFile.create(self._files, f"ids.{self._number()}.log")
        self._log.append(entries.tobytes())
        return entries

    def keep(self, piece: Array) -> None:
        """These entries are found from now on."""
        while self._pieces and len(self._pieces[-1][0]) < 2 * len(piece):
            piece = np.concatenate([self._pieces.pop()[1], piece])
        column, piece = _in_order(piece)
        self._pieces.append((column, piece))

    def _begin_run(self) -> None:
        """What is in memory becomes a run. The log goes with the next checkpoint."""
        _, entries = _in_order(np.concatenate([entries for _, entries in self._pieces]))
        writer = RunWriter(self._files, f"ids.{self._number()}.run")
        with writer.file.scrapping():
            writer.append(entries)
            run = writer.finish()
        if run:
            self._runs.append(run)
        if self._log:
            self._log.drop()
        self._log, self._pieces = None, []

    def messages(self, wanted: Array, origins: Origins, targets: Sequence[str], now_ms: int) -> list[list[Found]]:
        """The messages that bear each of the wanted ids (HASH), by origin."""
        found: list[list[Found]] = [[] for _ in range(len(wanted))]
        for which, entries in self.find(wanted, now_ms):
            values = np.minimum(origins.values(entries["origin"]), State.PENDING)
            dues, numbers = entries["due_target"] >> TARGET_BITS, entries["due_target"] % (1 << TARGET_BITS)
            columns = (column.tolist() for column in (which, entries["origin"], dues, numbers, values))
            for n, origin, due, number, value in zip(*columns, strict=True):
                if value:  # one whose append failed half way is not known
                    found[n].append(Found(origin, due, targets[number], _STATES[value]))
        return found

    def find(self, ids: Array, now_ms: int) -> Iterator[tuple[Array, Array]]:
        """The entries of ids (HASH): what is pending, and what was due within `kept_ms`.

        Two columns for some of the ids at a time: which of all the ids, in order; its entries, by origin, each once.
        """
        for start in range(0, len(ids), TOGETHER):
            wanted = ids[start : start + TOGETHER]
            found = [matches(entries, wanted, column) for column, entries in self._pieces]
            found += [run.find(wanted) for run in self._runs]
            if not found:
                return
            which = np.concatenate([which for which, _ in found])
            entries = np.concatenate([entries for _, entries in found])
            fresh = (entries["due_target"] >> TARGET_BITS) + self._kept_ms > now_ms
            fresh |= self._pending(entries["origin"])
            which, entries = which[fresh], entries[fresh]
            order = np.lexsort((entries["origin"], which))
            which, entries = which[order], entries[order]
            once = (np.diff(which, prepend=-1) != 0) | (np.diff(entries["origin"], prepend=-1) != 0)
            yield which[once] + start, entries[once]

    def merge(self, now_ms: int) -> Iterator[None] | None:
        """The steps of a merge, if one is due: of `FAN` runs of like size, or of one in which all is to be forgotten."""
        tiers: dict[int, list[IdRun]] = {}
        for run in self._runs:
            if run.last_due + self._kept_ms <= now_ms:
                return self._merge([run], now_ms)
            tier, count = 0, run.count  # from one tier to the next, runs are `FAN` times larger
            while count >= FAN * IN_MEMORY:
                tier, count = tier + 1, count // FAN
            tiers.setdefault(tier, []).append(run)
        full = [runs for runs in tiers.values() if len(runs) >= FAN]
        return self._merge(full[0], now_ms) if full else None

    def _merge(self, runs: list[IdRun], now_ms: int) -> Iterator[None]:
        writer = RunWriter(self._files, f"ids.{self._number()}.run")
        try:
            with writer.file.scrapping():
                for entries in merged(runs):
                    kept = (entries["due_target"] >> TARGET_BITS) + self._kept_ms > now_ms
                    writer.append(entries[kept | self._pending(entries["origin"])])
                    yield
                # what is pending though it was due long ago is looked at again after as long
                run = writer.finish(now_ms if len(runs) == 1 else 0)
        except BaseException:  # given up too
            writer.file.drop()
            raise
        self._runs = [one for one in self._runs if one not in runs] + ([run] if run else [])
        for one in runs:
            one.file.drop()

    def stored(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"log": self._log.stored() if self._log else None, "runs": [run.stored() for run in self._runs]}

    def restore(self, stored: dict[str, Any]) -> None:
        """Read it as a manifest has it. `StoreDamaged` if a file is not what was written."""
        if stored["log"]:
            self._log = CheckedFile.restore(self._files, stored["log"])
            self.keep(np.frombuffer(self._log.content(), ENTRY))
        self._runs = [IdRun.restore(self._files, run) for run in stored["runs"]]

    def names(self) -> set[str]:
        """Of its files."""
        return {run.file.name for run in self._runs} | ({self._log.name} if self._log else set())

    @property
    def bytes_on_disk(self) -> int:
        return sum(run.file.length for run in self._runs) + (self._log.length if self._log else 0)


def _in_order(entries: Array) -> tuple[Array, Array]:
    """Sorted hashes, and the entries in their order."""
    order = np.argsort(entries["hash"], kind="stable")
    entries = entries[order]
    return np.ascontiguousarray(entries["hash"]), entries

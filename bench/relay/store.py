"""What the relay's store costs, without Kafka: `waterclock bench relay --store [--sizes 1M]`.

Rule 1: messages have 200 bytes of value, a key of 8 and an id of 12, and are due within a week, evenly; one in ten has
        the id of another.
Rule 2: what is read and found is compared: a figure of a wrong answer is none.
Rule 3: a checkpoint is made once in `CHECKPOINT` messages, as an owner makes one a second at full ingest. Memory is
        what the process has resident, Python and NumPy with it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from waterclock.errors import WrongAnswer
from waterclock.relay.owner.due_soon import DueSoonWheel
from waterclock.relay.store import Identity, PartitionStore, pack, rows_of, unpack

BATCH, CHECKPOINT, TURN = 10_000, 200_000, 50_000
HOUR_MS, WEEK_MS = 3_600_000, 7 * 24 * 3_600_000
US = Identity("bench", "bench", 0)
Figures = dict[str, float]


def measure(folder: Path, pending: int, seed: int = 7) -> Figures:
    """All figures of one store with so many pending."""
    luck, figures = np.random.default_rng(seed), Figures(resident_mb_before=resident_mb())
    now_ms = time.time_ns() // 1_000_000
    with PartitionStore(folder, US) as store:
        store.begin(0)
        _append(store, luck, pending, now_ms, figures)
        figures["resident_mb"] = resident_mb()
        figures["bytes_per_pending"] = store.bytes_on_disk / pending
        with timed(figures, "tidy_s"):
            while store.tidy():
                pass
        store.checkpoint(pending, b"", 0)
        _find(store, luck, pending, figures)
        _settle(store, luck, pending, figures)
    with timed(figures, "open_s"):
        store = PartitionStore(folder, US)
    with store:
        if store.rebuilt or store.pending != pending - min(TURN, pending // 2):
            raise WrongAnswer(f"{store.pending} are pending after an opening, of {pending}: {store.rebuilt}")
        _load(store, now_ms, figures)
        figures["resident_mb_after"] = resident_mb()
    return figures


def _append(store: PartitionStore, luck: np.random.Generator, pending: int, now_ms: int, figures: Figures) -> None:
    value, spent = b"v" * 200, 0.0
    checkpoints, steps = list[float](), list[float]()
    for first in range(0, pending, BATCH):
        dues = now_ms + luck.integers(0, WEEK_MS, BATCH)
        blobs = [pack(value, b"%08d" % n, _id(n)) for n in range(first, first + BATCH)]
        targets = ["reminders"] * BATCH
        rows = rows_of(dues, range(first, first + BATCH))
        start = time.perf_counter()
        store.append(rows, blobs, targets)
        spent += time.perf_counter() - start
        if (first + BATCH) % CHECKPOINT == 0:
            start = step = time.perf_counter()
            for _ in store.checkpoint_steps(first + BATCH, b"", 0):
                steps.append(time.perf_counter() - step)
                step = time.perf_counter()
            steps.append(time.perf_counter() - step)
            checkpoints.append(time.perf_counter() - start)
    figures["append_per_s"] = pending / spent
    figures["append_and_checkpoint_per_s"] = pending / (spent + sum(checkpoints))
    figures["longest_checkpoint_ms"] = 1_000 * max(checkpoints, default=0)
    figures["longest_step_of_one_ms"] = 1_000 * max(steps, default=0)


def _id(number: int) -> bytes:
    return b"cart%08d" % (number - 1 if number % 10 == 9 else number)


def _find(store: PartitionStore, luck: np.random.Generator, pending: int, figures: Figures) -> None:
    turn = min(TURN, pending // 2)
    wanted = luck.integers(0, pending, turn).tolist()
    ids = [_id(n) for n in wanted]
    with timed(figures, "find_many_s"):
        found = store.find_many(ids)
    if not all(n in [one.origin for one in some] for n, some in zip(wanted, found, strict=True)):
        raise WrongAnswer("a message was not found by its id")
    figures["find_per_s"] = turn / figures.pop("find_many_s")
    with timed(figures, "find_1000_s"):
        for id in ids[:1_000]:
            store.find(id)
    figures["find_one_by_one_per_s"] = 1_000 / figures.pop("find_1000_s")


def _settle(store: PartitionStore, luck: np.random.Generator, pending: int, figures: Figures) -> None:
    origins = luck.choice(pending, min(TURN, pending // 2), replace=False)
    with timed(figures, "settle_s"):
        store.settle(origins)
    figures["settle_50k_ms"] = 1_000 * figures.pop("settle_s") * TURN / len(origins)
    store.checkpoint(pending, b"", 1)


def _load(store: PartitionStore, now_ms: int, figures: Figures) -> None:
    near, longest, loaded = DueSoonWheel(now_ms), 0.0, 0
    start = begun = time.perf_counter()
    for rows in store.load(now_ms + HOUR_MS, 100_000):
        near.add(rows)
        loaded += len(rows)
        longest, begun = max(longest, time.perf_counter() - begun), time.perf_counter()
    figures["loaded"], figures["load_s"] = loaded, time.perf_counter() - start
    figures["longest_slice_ms"] = 1_000 * longest
    with timed(figures, "take_s"):
        due = near.take(now_ms + HOUR_MS)
    with timed(figures, "read_s"):
        blobs = list(store.read(due))
    if any(unpack(blob).key != b"%08d" % origin for blob, origin in zip(blobs, due["origin"].tolist(), strict=True)):
        raise WrongAnswer("a message was read that is another's")
    figures["read_per_s"] = len(due) / figures.pop("read_s") if len(due) else 0.0


def burst(folder: Path, pending: int) -> Figures:
    """So many due within one hour, settled ones among them: what loading them all takes."""
    figures, now_ms = Figures(), time.time_ns() // 1_000_000
    start_ms = now_ms - now_ms % HOUR_MS + 2 * HOUR_MS
    luck = np.random.default_rng(7)
    with PartitionStore(folder, US) as store:
        for first in range(0, pending, BATCH):
            rows = rows_of(start_ms + luck.integers(0, HOUR_MS, BATCH), range(first, first + BATCH))
            store.append(rows, [pack(b"v" * 200, b"%08d" % n) for n in range(first, first + BATCH)], ["a"] * BATCH)
        store.checkpoint(pending, b"", 0)
        _load(store, start_ms, figures)
        if figures["loaded"] != pending:
            raise WrongAnswer(f"{figures['loaded']} were loaded of {pending}")
    return figures


def resident_mb() -> float:
    """What the process has in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_024
    return 0.0


@contextmanager
def timed(figures: Figures, name: str) -> Iterator[None]:
    """Seconds of wall time."""
    start = time.perf_counter()
    yield
    figures[name] = time.perf_counter() - start


def figures(pending: int, tell: Callable[[str], None]) -> dict[str, Figures]:
    """What `waterclock bench relay` shows of it."""
    pending = max(1, pending // BATCH) * BATCH
    together, found = min(pending, 1_000_000), dict[str, Figures]()
    for what, of in (
        (f"{pending:,} pending", partial(measure, pending=pending)),
        (f"{together:,} due within one hour", partial(burst, pending=together)),
    ):
        tell(f"relay, the store alone: {what}")
        with tempfile.TemporaryDirectory() as folder:
            found[what] = of(Path(folder))
    return found

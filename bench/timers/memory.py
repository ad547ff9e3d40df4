"""What a pending timer weighs, what one cancel can cost at most, and what a burst leaves behind.

Rule 1: each contender has a process of its own, so that what one leaves does not help the next.
Rule 2: bytes are the growth of the resident set while the timers are added. The list (or array) that holds the
        handles is there before and is not counted; callback and argument are shared, or none.
Rule 3: two bursts: one expires, one is cancelled timer by timer, each cancel timed for itself in CPU time of the
        thread. After each, handles dropped, garbage collected (a few objects kept for reuse hold whole arenas
        of memory) and a quiet second passed, the resident set is read again.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from waterclock.bench.timers.keepers import Keeper
from waterclock.bench.timers.verbs import CONTENDERS, Contender, Report, delays_ms
from waterclock.wheel import QUIET_S

BLOCK: Final = 100_000  # timers added at a time, so that the delays themselves weigh nothing
SLOW_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Weight:
    """One contender at one size; shares of what the burst took, 1.0 is all of it."""

    contender: str
    pending: int
    bytes_a_timer: float
    back_after_expire: float
    back_after_cancel: float
    slowest_cancel_us: float | None  # None where cancels come by the array
    cancels_above_1_ms: int | None


def measure(contenders: Sequence[Contender], sizes: Sequence[int], report: Report) -> list[dict[str, Any]]:
    """A record for each contender that is there, at its largest size."""
    found = []
    for contender in contenders:
        within = [size for size in sizes if size <= contender.largest]
        try:
            contender.load()
        except ImportError:
            continue
        if within:
            report(f"{contender.name}, {max(within):,} pending: memory")
            found.append(_in_its_own_process(contender.name, max(within)))
    return found


def _in_its_own_process(name: str, pending: int) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "waterclock.bench.timers.memory", name, str(pending)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:  # it may be too much for this machine, which is no reason to lose what else was measured
        why = (done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"])[-1]
        return {"contender": name, "pending": pending, "failed": why}
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def weigh(contender: Contender, pending: int) -> Weight:
    """Both bursts, in this process."""
    keeper = contender.load()(_nothing)
    add, drop = (_add_ids, _drop_ids) if keeper.by_array else (_add_handles, _drop_handles)
    handles = _room(keeper, pending)
    base = resident_bytes()
    add(keeper, handles, pending)
    full = resident_bytes()
    keeper.wait()
    keeper.expire()
    keeper.ran()
    drop(handles)
    _rest(keeper)
    expired = resident_bytes()
    add(keeper, handles, pending)
    full_again = resident_bytes()
    slowest, slow = _cancel_each(keeper, handles)
    drop(handles)
    _rest(keeper)
    cancelled = resident_bytes()
    return Weight(
        contender.name,
        pending,
        round((full - base) / pending, 1),
        _share(full - expired, full - base),
        _share(full_again - cancelled, full_again - base),
        slowest,
        slow,
    )


def _rest(keeper: Keeper) -> None:
    """A quiet second, after which memory is to be back; what turns the keeper turns on."""
    gc.collect()
    time.sleep(QUIET_S + 0.1)
    keeper.expire()


def resident_bytes() -> int:
    """The resident set of this process."""
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _share(part: int, whole: int) -> float:
    return round(part / whole, 3) if whole > 0 else 1.0


def _room(keeper: Keeper, pending: int) -> Any:
    if not keeper.by_array:
        return [None] * pending
    import numpy as np

    return np.full(pending, -1, dtype=np.int64)


def _blocks(keeper: Keeper, pending: int) -> Any:
    for start in range(0, pending, BLOCK):
        yield start, keeper.prepare(delays_ms(min(BLOCK, pending - start), seed=start))


def _add_handles(keeper: Keeper, handles: Any, pending: int) -> None:
    add = keeper.add
    for start, delays in _blocks(keeper, pending):
        for place, delay in enumerate(delays, start):
            handles[place] = add(delay, _nothing)


def _add_ids(keeper: Keeper, handles: Any, pending: int) -> None:
    for start, delays in _blocks(keeper, pending):
        handles[start : start + len(delays)] = keeper.add_all(delays)


def _drop_handles(handles: Any) -> None:
    for place in range(len(handles)):
        handles[place] = None


def _drop_ids(handles: Any) -> None:
    handles[:] = -1


def _cancel_each(keeper: Keeper, handles: Any) -> tuple[float | None, int | None]:
    """In random order; the slowest in us, and how many took more than a millisecond."""
    keeper.shuffle(handles, seed=1)
    if keeper.by_array:
        keeper.cancel_all(handles)
        return None, None
    cancel, clock = keeper.cancel, time.thread_time_ns
    slowest = slow = 0
    for handle in handles:
        begin = clock()
        cancel(handle)
        took = clock() - begin
        if took > slowest:
            slowest = took
        if took > SLOW_NS:
            slow += 1
    return slowest / 1000, slow


def _nothing() -> None:
    pass


def main() -> None:
    """The process of one contender: its name and the number of timers in, one JSON record out."""
    name, pending = sys.argv[1], int(sys.argv[2])
    contender = next(c for c in CONTENDERS if c.name == name)
    print(json.dumps(asdict(weigh(contender, pending))))


if __name__ == "__main__":
    main()

"""How long nothing is delivered while relays are restarted one after the other, and while they are killed, under a load.

    python -m waterclock.bench.relay.restarts --restarts 100 --kills 100 --rate 6000 --brokers own|apache

Two relays share three partitions. Each `--every` seconds one of them, by turns, is stopped (SIGTERM) or killed (SIGKILL),
and started again `--away` seconds later. A gap is the longest time without a delivery in one of the partitions from then
until the next one is stopped: what its end costs, and what its return costs. Each message must be had once, and none early.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any, Final

import numpy as np

from waterclock.bench.polling.figures import percentile
from waterclock.bench.relay import figures
from waterclock.bench.relay.campaign import keepers
from waterclock.bench.relay.on_kafka import OnKafka
from waterclock.bench.relay.putting import Load, Putting
from waterclock.bench.relay.ways import now_us

LEAD_MS: Final = 1_000
SETTLES_S: Final = 5.0


def gaps_ms(had: Any, ended_us: list[int], until_us: int) -> list[float]:
    """Of each end of a relay.

    >>> gaps_ms(np.array([[0, 1_000, 0], [1, 2_000, 1], [2, 9_000, 0], [3, 12_000, 1], [4, 13_000, 0]]), [1_500], 20_000)
    [10.0]
    """
    found = []
    for began_us, over_us in zip(ended_us, [*ended_us[1:], until_us], strict=True):
        longest = 0
        for number in np.unique(had[:, 2]):
            at_us = np.sort(had[had[:, 2] == number, 1])
            first, last = np.searchsorted(at_us, (began_us, over_us))
            longest = max(longest, int(np.diff(at_us[max(0, first - 1) : last]).max(initial=0)))
        found.append(longest / 1000)
    return found


def measure(keeper: OnKafka, sig: signal.Signals, times: int, chosen: argparse.Namespace, first: int) -> str:
    """So many ends by a signal: one line of figures."""
    lasts_s = SETTLES_S + times * chosen.every
    load = Load(first, int(chosen.rate * lasts_s), now_us() // 1000 + 3_000, int(lasts_s * 1000), LEAD_MS)
    target, ended_us = keeper.target(), list[int]()
    putting = Putting(keeper.way, keeper.address, target, load)
    try:
        with keeper.taking(target, load.count) as taker:
            for number in range(times):
                relay = keeper.relays[number % 2]
                time.sleep(max(0.0, load.due_ms / 1000 + SETTLES_S + number * chosen.every - time.time()))
                ended_us.append(now_us())
                relay.end(sig)
                took_s = now_us() / 1e6 - ended_us[-1] / 1e6
                time.sleep(max(0.0, chosen.away - took_s))
                relay.start()
            putting.done()
            had = taker.had()
    finally:
        putting.kill()
    figures.check(keeper.name, load, had)
    found = gaps_ms(had, ended_us, load.due_ms * 1000 + int(lasts_s * 1e6))
    if chosen.each:
        print([round(each) for each in found])
    p50, p99 = (percentile(found, share) for share in (0.5, 0.99))
    late = figures.lateness(load, had)
    return (
        f"{keeper.name}: {times} ends by {sig.name}, {chosen.rate:,} due a second: gap p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
        f"longest {max(found):.0f} ms; {load.count:,} messages, 0 lost, 0 early, 0 twice; late p50 {late['p50_ms']:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m waterclock.bench.relay.restarts", description=__doc__)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--away", type=float, default=2.0)
    parser.add_argument("--brokers", choices=("own", "apache"), default="own")
    parser.add_argument("--each", action="store_true", help="print each gap")
    chosen = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
    keeper = keepers()[chosen.brokers == "apache"]
    assert isinstance(keeper, OnKafka)
    with keeper:
        keeper.both()
        first = 0
        for sig, times in ((signal.SIGTERM, chosen.restarts), (signal.SIGKILL, chosen.kills)):
            if times:
                print(measure(keeper, sig, times, chosen, first), flush=True)
            first += 100_000_000


if __name__ == "__main__":
    main()

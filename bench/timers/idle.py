"""A server of many connections whose idle timeouts move with each message: CPU a message, memory, entries that wait.

Nine connections of ten say something each second, at their own moment of it; the tenth falls silent at once, and has to be
ended after IDLE_S seconds. The messages come from the loop itself, in batches, without sockets: a socket's cost would hide
what is measured, and is the same for all.

Rule 1: each way has a process of its own: what one leaves in memory, no other one finds.
Rule 2: CPU is that of the loop's thread from the first message to the last, waking and ending included, by message; beside
    it what is left without the load itself, which is the way that keeps no timeout.
Rule 3: a connection that was ended before its time, one that was to end and did not, or one that ended twice is a
    `WrongAnswer`. A second for which nothing ran at all is no fault of a way: who talks is idle long after it.
Rule 4: entries are what waits at most, seen once a batch: the loop's heap and the wheel. uvloop does not tell.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from waterclock.bench.tables import aligned, short
from waterclock.bench.timers.connections import NOBODY, WAYS, Server, loop_of
from waterclock.bench.timers.memory import resident_bytes
from waterclock.bench.timers.verbs import Report
from waterclock.errors import WrongAnswer, pip_install

IDLE_S: Final = 2.5
BATCH_S: Final = 0.005
EVERY_S: Final = 1.0  # a talker says something so often
SILENT: Final = 10  # one of so many
EARLY_S: Final = 0.002  # a loop's clock may be as coarse
LATE_S: Final = 1.0
LOOPS: Final = ("asyncio", "uvloop")


class Load:
    """Who says something when, and who was ended when."""

    def __init__(self, connections: int) -> None:
        self.talkers = [number for number in range(connections) if number % SILENT]
        random.Random(connections).shuffle(self.talkers)
        self.silent = set(range(0, connections, SILENT))
        self.said_s = [0.0] * connections
        self.ended_s: dict[int, float] = {}
        self.twice: list[int] = []
        self.sent = 0

    def ended(self, number: int) -> None:
        """A connection was ended."""
        if number in self.ended_s:
            self.twice.append(number)
        self.ended_s[number] = time.monotonic()

    def say(self, connections: Sequence[Any], passed_s: float) -> None:
        """All that is to be said by now; who was ended says no more."""
        now_s, said_s, talkers, ended = time.monotonic(), self.said_s, self.talkers, self.ended_s
        until = int(passed_s / EVERY_S * len(talkers))
        for place in range(self.sent, until):
            number = talkers[place % len(talkers)]
            if number not in ended:
                connections[number].data_received(b"still here")
                said_s[number] = now_s
        self.sent = until

    def judge(self, name: str) -> None:
        """`WrongAnswer` where somebody was ended wrongly (rule 3)."""
        early = [n for n, at_s in self.ended_s.items() if at_s < self.said_s[n] + IDLE_S - EARLY_S]
        left = self.silent - set(self.ended_s)
        if early or left or self.twice:
            raise WrongAnswer(
                f"{name}: {len(early)} connections were ended before their time, {len(left)} that were silent were not "
                f"ended, {len(self.twice)} were ended twice"
            )


async def _live(name: str, connections: int, seconds: float) -> dict[str, Any]:
    load = Load(connections)
    loop = asyncio.get_running_loop()
    server = Server(IDLE_S, load.ended if name != NOBODY else (lambda number: None))
    gc.collect()
    base, most = resident_bytes(), 0
    load.said_s = [time.monotonic()] * connections
    kept = [WAYS[name](server, number) for number in range(connections)]
    scheduled: Any = getattr(loop, "_scheduled", None)
    begin_s, begin_ns = time.monotonic(), time.thread_time_ns()
    while (passed_s := time.monotonic() - begin_s) < seconds:
        load.say(kept, passed_s)
        if scheduled is not None:
            most = max(most, len(scheduled) + len(server.timer))
        await asyncio.sleep(BATCH_S)
    load.say(kept, seconds)  # what a machine that stood still had no time for
    spent_ns = time.thread_time_ns() - begin_ns
    weight = resident_bytes() - base
    await asyncio.sleep(2 * BATCH_S)  # where the machine stood still at the very end, what was due runs now
    server.timer.close()
    if name != NOBODY:
        load.judge(name)
    return {
        "messages": load.sent,
        "cpu_ns": round(spent_ns / max(1, load.sent)),
        "bytes": round(weight / connections),
        "most": most if scheduled is not None else None,
        "ended": len(load.ended_s),
    }


def measure(connections: int, seconds: float, report: Report) -> list[dict[str, Any]]:
    """A record for each way and loop; `seconds` are those in which there are messages, and `IDLE_S` more at least."""
    found: list[dict[str, Any]] = []
    seconds = max(seconds, IDLE_S + LATE_S)
    for loop in LOOPS:
        try:
            loop_of(loop).close()
        except ImportError:
            report(f"{loop} is not there: {pip_install('bench')}")
            continue
        for name in WAYS:
            report(f"{name}, {connections:,} connections, {loop}: {seconds:g} s")
            record = _in_its_own_process(loop, name, connections, seconds)
            found.append({"way": name, "loop": loop, "connections": connections, "seconds": seconds, **record})
    return found


def _in_its_own_process(loop: str, name: str, connections: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "waterclock.bench.timers.idle", loop, name, str(connections), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongAnswer((done.stderr.strip().splitlines() or [f"{name} ended by signal {-done.returncode}"])[-1])
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def table(records: Sequence[dict[str, Any]]) -> str:
    """ns a message, all of it and without the load; bytes and entries."""
    load = {r["loop"]: r["cpu_ns"] for r in records if r["way"] == NOBODY}
    head = ["idle timeouts", "loop", "connections", "CPU ns a message", "without the load", "bytes each", "entries"]
    rows = [
        [
            r["way"],
            r["loop"],
            short(r["connections"]),
            f"{r['cpu_ns']:,}",
            "-" if r["way"] == NOBODY else f"{r['cpu_ns'] - load[r['loop']]:,}",
            f"{r['bytes']:,}",
            "-" if r["most"] is None else f"{r['most']:,}",
        ]
        for r in records
    ]
    missing = "" if "uvloop" in load else f"\nuvloop: not measured: {pip_install('bench')}"
    return (
        aligned(head, rows)
        + "\na message a second by nine of ten connections; the tenth is silent and was ended; entries: what waits at most"
        + missing
    )


def main() -> None:
    """The process of one way: loop, name, connections and seconds in, one JSON record out."""
    kind, name, connections, seconds = sys.argv[1:]
    loop = loop_of(kind)
    asyncio.set_event_loop(loop)
    try:
        print(json.dumps(loop.run_until_complete(_live(name, int(connections), float(seconds)))))
    finally:
        loop.close()


if __name__ == "__main__":
    main()

"""Messages for later: the relay on two brokers, beside what people use instead, under the same loads.

For each keeper and each number of messages pending, which are due within a week after an hour:

    kept        putting them in; filing them, where that is another thing; memory and disk for each
    idle        nothing is due, and what was put in was tidied; somebody waits for messages: shares of a core, and memory
    late 2,000  so many a second, each put in a second before it is due
    late 6,000  likewise
    burst       so many due at one instant: until the last one is in somebody's hands
    cancel      of messages that are pending, each answered
    crash       kill -9 of the keeper, which is started again at once, while messages are due
    take-over   kill -9 of a relay that stays away; another one takes its partitions over

Rule 1: keepers, whoever puts in and whoever takes are processes of their own, on the same machine, with the same clock.
Rule 2: each message is had once, and none early, or the figure is `WrongAnswer`'s words.
Rule 3: others than ours are measured with the fewest pending: some would need hours to take in ten million.
Rule 4: a part that fails is told with its reason, and the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from waterclock.bench.relay import figures
from waterclock.bench.relay.figures import Figures
from waterclock.bench.relay.keeper import Keeper, Most, NotMeasured, cpu_of
from waterclock.bench.relay.on_kafka import OnKafka
from waterclock.bench.relay.polled import Polled
from waterclock.bench.relay.putting import Load, put_in
from waterclock.bench.relay.sorted_set import SortedSet
from waterclock.bench.relay.ways import now_us
from waterclock.bench.servers import apache
from waterclock.bench.servers.apache import ApacheKafka
from waterclock.bench.servers.ours import OurBroker

Tell = Callable[[str], None]
SERVER_JVM: Final = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as Kafka's own script starts it
KEPT: Final = {"group.initial.rebalance.delay.ms": "0"}
OURS: Final = "waterclock relay"
HOUR_MS: Final = 3_600_000
WEEK_MS: Final = 7 * 24 * HOUR_MS
RATES: Final = (2_000, 6_000)
LEAD_MS: Final = 1_000
TIDIED_PER_S: Final = 500_000  # files that were just written are merged; that is no idling
BURSTS: Final = (20_000, 100_000)  # times the seconds of a measurement
CANCELS: Final = 10_000  # likewise
CRASH_RATE: Final = 500
CRASH_S: Final = 2.0
WAITS_MS: Final = 3_000  # before the first of a load is due
PARTS: Final = ("kept", "idle", *(f"late {rate}" for rate in RATES), *(f"burst {n}" for n in BURSTS), "cancel", "crash",
                "take-over")  # fmt: skip


def keepers() -> list[Keeper]:
    """Everybody, the first one ours."""
    from waterclock.bench.relay.jobs import Jobs

    return [
        OnKafka(OURS, lambda folder: OurBroker(folder, KEPT), lambda: ""),
        OnKafka(f"{OURS}, Apache Kafka", _apache, _apache_version),
        SortedSet("Redis, flushed each second", "everysec"),
        SortedSet("Redis, flushed always", "always"),
        Polled("polled table, PostgreSQL"),
        Jobs("procrastinate, PostgreSQL"),
    ]


def _apache(folder: Path) -> ApacheKafka:
    """As it comes: what it acknowledges is in the page cache of the machine."""
    try:
        apache.fetch()
    except RuntimeError as why:
        raise NotMeasured(str(why)) from None
    return ApacheKafka(folder, KEPT, SERVER_JVM)


def _apache_version() -> str:
    jar = next(apache.LIB.glob("kafka-clients-*.jar"))
    return f"Apache Kafka {jar.stem.removeprefix('kafka-clients-')}"


def measure(sizes: Sequence[int], seconds: float, tell: Tell, alone: bool = False) -> Figures:
    """`runs`: by keeper and size, its parts; `notes`: who was left out, and why. `alone`: the relay on our broker only."""
    found: Figures = {"seconds": seconds, "pending": list(sizes), "load": os.getloadavg()[0], "runs": [], "notes": {}}
    for keeper in keepers()[: 1 if alone else None]:
        for pending in sizes if keeper.name.startswith(OURS) else [min(sizes)]:
            try:
                with keeper:
                    parts = {"version": keeper.version(), **Run(keeper, pending, seconds, tell).parts()}
            except NotMeasured as why:
                found["notes"][keeper.name] = f"not measured: {why}"
                break
            found["runs"].append({"keeper": keeper.name, "pending": pending, **parts})
    return found | {"load_after": os.getloadavg()[0]}


class Run:
    """All parts of one keeper with so many pending."""

    def __init__(self, keeper: Keeper, pending: int, seconds: float, tell: Tell) -> None:
        self._keeper = keeper
        self._seconds = seconds
        self._tell = tell
        self._most = keeper.most or Most(pending, max(RATES), round(max(BURSTS) * seconds))
        self._pending = min(pending, self._most.pending)
        self._kept = 0  # as many are pending
        self._numbers = count(1_000_000_000, 1_000_000_000)  # from where each load is numbered
        self._per_s = 1.0  # how many are put in and filed in a second

    def parts(self) -> Figures:
        """All of them, in order."""
        deeds: dict[str, Callable[[], Figures]] = {"kept": self._fill, "idle": self._idle}
        deeds |= {f"late {rate}": lambda rate=rate: self._late(rate) for rate in RATES}  # type: ignore[misc]
        deeds |= {f"burst {n}": lambda n=n: self._burst(n) for n in BURSTS}  # type: ignore[misc]
        deeds |= {"cancel": self._cancel, "crash": self._crash, "take-over": self._take_over}
        found: Figures = {}
        for name in PARTS:
            self._tell(f"relay, {self._keeper.name}, {self._pending:,} pending: {name}")
            try:
                found[name] = deeds[name]()
            except NotMeasured as why:
                found[name] = {"left_out": str(why)}
            except Exception as error:
                found[name] = {"error": f"{error}" or repr(error)}
                if name == "kept":
                    break
        return found

    # What is kept

    def _fill(self) -> Figures:
        keeper = self._keeper
        load = Load(0, self._pending, now_us() // 1000 + HOUR_MS, WEEK_MS)
        target = keeper.target()
        before_mb = keeper.resident_mb()
        put = put_in(keeper.way, keeper.address, target, load)
        filed_s = keeper.catch_up_s(self._pending)
        keeper.until_kept(self._pending)
        self._kept = self._pending
        filed = {} if filed_s is None else {"filed_per_s": self._pending / filed_s}
        self._per_s = 1 / (1 / put["per_s"] + (filed_s or 0.0) / self._pending)
        resident_mb = keeper.resident_mb()
        disk = {f"disk_{what}_bytes": size / self._pending for what, size in keeper.bytes_on_disk().items()}
        memory = {"resident_mb": resident_mb, "resident_bytes": (resident_mb - before_mb) * 1e6 / self._pending}
        return {"messages": self._pending, "put_per_s": put["per_s"], **filed, **memory, **disk}

    def _idle(self) -> Figures:
        with self._keeper.taking(self._keeper.target(), 1) as taker:
            time.sleep(max(0.5, self._pending / TIDIED_PER_S))
            kinds = self._keeper.processes()
            before = {kind: cpu_of(pids) for kind, pids in kinds.items()}
            takers_s, began_s = taker.cpu_s(), time.monotonic()
            time.sleep(max(1.0, self._seconds))
            took_s = time.monotonic() - began_s
            shares = {kind: (cpu_of(pids) - before[kind]) / took_s for kind, pids in kinds.items()}
            shares["taker"] = (taker.cpu_s() - takers_s) / took_s
            return {**shares, "resident_mb": self._keeper.resident_mb()}

    # What is due

    def _late(self, rate: int) -> Figures:
        if self._most.rate < rate != RATES[0]:
            raise NotMeasured(f"it does not do {self._most.rate + 1:,} a second")
        rate = min(rate, self._most.rate)
        load = self._load(round(rate * self._seconds), int(self._seconds * 1000), WAITS_MS, LEAD_MS)
        return {"rate": rate, **figures.lateness(load, self._had(load))}

    def _burst(self, times: int) -> Figures:
        messages = round(times * self._seconds)
        if self._most.burst < messages and times != BURSTS[0]:
            raise NotMeasured(f"it would take minutes: {self._most.burst:,} are asked of it")
        messages = min(messages, self._most.burst)
        load = self._load(messages, 0, WAITS_MS + round(1_500 * messages / self._per_s))
        keeper, target = self._keeper, self._keeper.target()
        with keeper.taking(target, load.count) as taker:
            put_in(keeper.way, keeper.address, target, load)
            if now_us() < load.due_ms * 1000 - 1_500_000:
                keeper.until_kept(self._kept + load.count)
            ready_us = now_us()
            had = taker.had()
        figures.check(keeper.name, load, had)
        return {**figures.burst(load, had, ready_us), "ready_late_ms": max(0.0, ready_us / 1000 - load.due_ms)}

    def _load(self, messages: int, span_ms: int, ahead_ms: int, lead_ms: int = 0) -> Load:
        return Load(next(self._numbers), messages, now_us() // 1000 + ahead_ms, span_ms, lead_ms)

    def _had(self, load: Load) -> Any:
        """Put a load in while it becomes due, and see that each was had once."""
        keeper, target = self._keeper, self._keeper.target()
        with keeper.taking(target, load.count) as taker:
            put_in(keeper.way, keeper.address, target, load)
            had = taker.had()
        figures.check(keeper.name, load, had)
        return had

    # Cancels and kills

    def _cancel(self) -> Figures:
        messages = min(round(CANCELS * self._seconds), self._most.burst)
        load, target = self._load(messages, 0, 2 * HOUR_MS), self._keeper.target()
        put_in(self._keeper.way, self._keeper.address, target, load)
        self._keeper.until_kept(self._kept + messages)
        took_s = self._keeper.cancel(range(load.first, load.first + messages))
        return {"messages": messages, "per_s": messages / took_s}

    def _crash(self) -> Figures:
        keeper, target = self._keeper, self._keeper.target()
        load = self._load(round(min(CRASH_RATE, self._most.rate) * CRASH_S), int(CRASH_S * 1000), WAITS_MS)
        with keeper.taking(target, load.count) as taker:
            put_in(keeper.way, keeper.address, target, load)
            time.sleep(max(0.0, load.due_ms / 1000 + CRASH_S / 4 - time.time()))
            killed_us = keeper.crash()
            had = taker.had()
        figures.check(keeper.name, load, had)
        return {"again_ms": figures.gap_ms(load, had, killed_us), "messages": load.count}

    def _take_over(self) -> Figures:
        return self._keeper.take_over(next(self._numbers), CRASH_RATE, CRASH_S)

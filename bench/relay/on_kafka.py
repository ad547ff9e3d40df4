"""The relay, on our broker or on Apache Kafka: the command `waterclock relay` in processes of its own.

Rule 1: what is put in before the relay runs is filed when it starts: so the two are told apart.
Rule 2: how much is pending is what the relay says at its web door, which is a second old at most.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from waterclock.bench.relay import figures
from waterclock.bench.relay.figures import Figures
from waterclock.bench.relay.keeper import bytes_in, free_port, resident_of
from waterclock.bench.relay.putting import Load, put_in
from waterclock.bench.relay.taking import Taking, taking
from waterclock.bench.relay.ways import TOPIC, named, now_us
from waterclock.bench.servers.ours import MAIN
from waterclock.bench.servers.server import Process, Server
from waterclock.errors import WrongAnswer

PARTITIONS: Final = 3
WAIT_S: Final = 600.0
LOOK_S: Final = 0.05
LEAD_MS: Final = 3_000
KEPT: Final = {"retention.ms": "-1"}
Start = Callable[[Path], Server]


class Relay:
    """One process of `waterclock relay`, killed and started again at will."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._bootstrap = bootstrap
        self._port = free_port()
        self._process: Process | None = None

    def start(self) -> None:
        place = ["--bootstrap", self._bootstrap, "--topic", TOPIC, "--folder", str(self.folder / "files")]
        command = [sys.executable, "-P", "-c", MAIN, "relay", *place, "--metrics", str(self._port)]
        log = self.folder / "relay.log"
        self._process = Process(command, log, lambda written: "waterclock relay ready" in written)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_there(self) -> bool:
        return self._process is not None

    def end(self, sig: int = signal.SIGKILL) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end(signal.Signals(sig))

    def statistics(self) -> Mapping[str, Any]:
        """What it says of itself; nothing, where it does not answer."""
        url = f"http://127.0.0.1:{self._port}/statistics.json"
        with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as answer:
            found: Mapping[str, Any] = json.load(answer)["statistics"]
            return found
        return {"partitions": {}}


class OnKafka:
    """A keeper: a broker, and one relay, for a while two."""

    way: Final = "kafka"
    most: Final = None

    def __init__(self, name: str, start: Start, version: Callable[[], str]) -> None:
        self.name = name
        self._start = start
        self.version = version
        self._targets = 0

    def __enter__(self) -> OnKafka:
        self._stack = ExitStack()
        with ExitStack() as stack:  # what was started is ended where the next thing does not start
            folder = Path(tempfile.mkdtemp(prefix="waterclock-bench-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self._folder, self._server = folder, self._start(folder / "broker")
            stack.callback(self._server.kill)
            self.address = self._server.bootstrap
            self.relays = [Relay(folder / name, self.address) for name in ("one", "two")]
            for relay in self.relays:
                stack.callback(relay.end)
            self.relays[0].start()  # it makes the topics
            self._empty_mb = resident_of([self.relays[0].pid])
            self.relays[0].end(signal.SIGTERM)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def target(self) -> str:
        from waterclock.bench.broker.workloads import create

        self._targets += 1
        create(self.address, f"target-{self._targets}", PARTITIONS)
        return f"target-{self._targets}"

    def catch_up_s(self, pending: int) -> float | None:
        self.relays[0].start()
        began_s = time.monotonic()
        self.until_kept(pending)
        return time.monotonic() - began_s

    def until_kept(self, pending: int) -> None:
        def kept() -> bool:
            each = [one for relay in self._running() for one in relay.statistics()["partitions"].values()]
            return len(each) == PARTITIONS and sum(one["pending"] for one in each) >= pending

        wait_for(kept, f"{self.name} does not keep {pending:,} messages")

    def _running(self) -> list[Relay]:
        return [relay for relay in self.relays if relay.is_there]

    def taking(self, target: str, count: int) -> AbstractContextManager[Taking]:
        return taking(self.way, self.address, target, count)

    def processes(self) -> dict[str, list[int]]:
        return {"relay": [relay.pid for relay in self._running()], "broker": [self._server.pid]}

    def resident_mb(self) -> float:
        pids = self.processes()["relay"]
        return resident_of(pids) if pids else self._empty_mb

    def bytes_on_disk(self) -> dict[str, int]:
        return {"files": bytes_in(self.relays[0].folder), "log": bytes_in(self._folder / "broker")}

    def crash(self) -> int:
        killed_us = now_us()
        self.relays[0].end()
        self.relays[0].start()
        return killed_us

    def cancel(self, numbers: Sequence[int]) -> float:
        from confluent_kafka import Producer

        from waterclock.kafka.settings import SENDING, base_settings

        producer = Producer({**base_settings(self.address, {}), **SENDING})
        with self._replies() as reader:
            began_s, answered = time.monotonic(), 0
            for number in numbers:
                id = named(number)
                producer.produce(TOPIC, None, id, headers=[("delay-id", id), ("delay-action", b"cancel")])
                if not number % 1_000:
                    producer.poll(0)
            while answered < len(numbers):
                producer.poll(0)
                answered += _cancelled(reader)
            return time.monotonic() - began_s

    @contextmanager
    def _replies(self) -> Iterator[Any]:
        """A reader of the replies, from now on."""
        from confluent_kafka import Consumer, TopicPartition

        from waterclock.kafka.settings import READING, base_settings

        quick = {"fetch.wait.max.ms": 100, "fetch.queue.backoff.ms": 1, "enable.partition.eof": False}
        settings = {**base_settings(self.address, {}), **READING, **quick, "group.id": "unused"}
        asked, reader = Consumer(settings), Consumer(settings)
        each = [TopicPartition(f"{TOPIC}.replies", number) for number in range(PARTITIONS)]
        for one in each:
            one.offset = asked.get_watermark_offsets(one, timeout=10)[1]
        asked.close()
        reader.assign(each)
        reader.poll(0.5)
        try:
            yield reader
        finally:
            reader.close()

    # Take-over

    def take_over(self, first: int, rate: int, seconds: float) -> Figures:
        """Twice: by one that reads the log of a partition for the first time, and by one that has files of it."""
        self.relays[1].start()
        self._until_shared()
        cold_ms = self._killed(first, rate, seconds)
        self.relays[0].start()
        self._until_shared()
        warm_ms = self._killed(first + 10_000_000, rate, seconds)
        self.relays[1].end()
        return {"cold_ms": cold_ms, "warm_ms": warm_ms}

    def both(self) -> None:
        """Two relays, which share the partitions."""
        for relay in self.relays:
            relay.start()
        self._until_shared()

    def _until_shared(self) -> None:
        def shared() -> bool:
            each = [list(relay.statistics()["partitions"].values()) for relay in self.relays]
            known = [one for some in each for one in some]
            return all(each) and len(known) == PARTITIONS and all(one["caught_up"] for one in known)

        wait_for(shared, f"two relays of {self.name} do not share the partitions")

    def _killed(self, first: int, rate: int, seconds: float) -> float:
        """Kill the first relay while messages are due, and leave it away."""
        load = Load(first, int(rate * seconds), now_us() // 1000 + LEAD_MS, int(seconds * 1000))
        target = self.target()
        put_in(self.way, self.address, target, load)
        with self.taking(target, load.count) as taker:
            time.sleep(max(0.0, load.due_ms / 1000 + seconds / 4 - time.time()))
            killed_us = now_us()
            self.relays[0].end()
            had = taker.had()
        figures.check(self.name, load, had)
        return figures.gap_ms(load, had, killed_us)


def _cancelled(reader: Any) -> int:
    """How many answers came; WrongAnswer for one that is not `cancelled`."""
    first = reader.poll(10.0)
    if first is None:
        raise WrongAnswer("a cancel was not answered within ten seconds")
    messages = [first, *reader.consume(10_000, 0)]
    told = [json.loads(message.value()) for message in messages if message.error() is None]
    if wrong := [one for one in told if (one["outcome"], one["count"]) != ("cancelled", 1)]:
        raise WrongAnswer(f"{len(wrong)} cancels of what was pending were answered otherwise: {wrong[0]}")
    return len(told)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """WrongAnswer where it does not come."""
    until_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until_s:
            raise WrongAnswer(f"{what}, {WAIT_S:.0f} s later")
        time.sleep(LOOK_S)

"""kill -9 under load: nothing acknowledged is lost, nothing of an idempotent producer is there twice, order holds per key.

The broker is a process of its own; confluent-kafka's producers write with acks=all until it dies, and go on when it is
back. CAMPAIGN_SEED=n makes the campaign's choices again (not the scheduler's).
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

confluent = pytest.importorskip("confluent_kafka")
pytest.importorskip("kio")

PARTITIONS, KEYS = 3, 8
QUIET = {"log_level": 0, "acks": "all", "linger.ms": 2, "message.timeout.ms": 120_000, "retry.backoff.ms": 20,
         "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
         "queue.buffering.max.messages": 5_000}  # fmt: skip
SETTINGS = ("log.segment.bytes=1100000", "num.partitions=3")


class Process:
    """`waterclock broker` on one folder and one port, as often as it takes."""

    def __init__(self, folder: Path, port: int) -> None:
        program = "import sys; from waterclock.cli import main; sys.exit(main())"
        self._command = [sys.executable, "-c", program, "broker", "--data", str(folder), "--port", str(port)]
        for setting in SETTINGS:
            self._command += ["--set", setting]

    def start(self) -> str:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "ready on" in line
        return line.split("ready on ")[1].split(",")[0]

    def kill(self) -> None:
        with self._process:
            self._process.kill()


class Writer(threading.Thread):
    """A producer that counts up for each of its keys, and notes what was acknowledged."""

    def __init__(self, name: str, bootstrap: str, idempotent: bool, size: int) -> None:
        super().__init__(name=name)
        config = QUIET | {"bootstrap.servers": bootstrap, "enable.idempotence": idempotent}
        if not idempotent:
            config |= {"max.in.flight.requests.per.connection": 1}
        self._producer, self._size = confluent.Producer(config), size
        self.over = threading.Event()
        self.acknowledged: dict[str, list[int]] = defaultdict(list)

    def run(self) -> None:
        count = 0
        while not self.over.is_set():
            for key in (f"{self.name}-{n}" for n in range(KEYS)):
                self._produce(key, count)
            count += 1
            self._producer.poll(0)
        assert self._producer.flush(120) == 0

    def _produce(self, key: str, count: int) -> None:
        value = b"%d " % count + b"x" * self._size
        while True:
            try:
                self._producer.produce("t", value, key, on_delivery=self._noted)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _noted(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.key().decode()].append(int(message.value().split()[0]))  # type: ignore[attr-defined]


def everything(bootstrap: str) -> dict[str, list[int]]:
    """What is in the topic, by key, in the order of the log."""
    consumer = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    found: dict[str, list[int]] = defaultdict(list)
    for number in range(PARTITIONS):
        place = confluent.TopicPartition("t", number, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            for message in consumer.consume(10_000, timeout=0.5):
                assert message.error() is None
                found[message.key().decode()].append(int(message.value().split()[0]))
        consumer.unassign()
    consumer.close()
    return found


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def campaign(folder: Path, kills: int, seed: int) -> None:
    luck, process = random.Random(seed), Process(folder, free_port())
    bootstrap = process.start()
    writers = [Writer(f"w{n}", bootstrap, n % 2 == 0, luck.choice([10, 1000])) for n in range(4)]
    try:
        for writer in writers:
            writer.start()
        for _ in range(kills):
            time.sleep(luck.uniform(0.05, 1.0))
            process.kill()
            process.start()
        for writer in writers:
            writer.over.set()
        for writer in writers:
            writer.join(150)
        check(writers, everything(bootstrap))
    finally:
        for writer in writers:
            writer.over.set()
        process.kill()


def check(writers: list[Writer], found: dict[str, list[int]]) -> None:
    for n, writer in enumerate(writers):
        assert not writer.is_alive()
        assert len(writer.acknowledged) == KEYS
        for key, acknowledged in writer.acknowledged.items():
            kept = found[key]
            assert set(acknowledged) <= set(kept), f"{key}: acknowledged and lost"
            firsts = list(dict.fromkeys(kept))
            assert firsts == sorted(firsts), f"{key}: out of order"
            if n % 2 == 0:
                assert kept == firsts, f"{key}: twice"


@pytest.mark.long(seconds=11)
def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice_when_the_broker_is_killed(tmp_path: Path) -> None:
    campaign(tmp_path, 5, seed=1)


@pytest.mark.long(seconds=30)
@pytest.mark.parametrize("part", range(10))
def test_nor_after_two_hundred_kills(tmp_path: Path, campaign_seed: int, part: int) -> None:
    campaign(tmp_path, 20, campaign_seed)

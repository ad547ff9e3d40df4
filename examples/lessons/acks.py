"""acks: what was reported to the producer, what is still there after a crash, and what is lost: reported and gone.

Two crashes, which are not the same:

    kill -9      the broker's process dies, the machine lives. What was written stays in the machine's memory and comes
                 to the disk later. Only what the process had not read yet is lost; so that there is some, the process
                 stands still for a moment before, as one does on a busy machine
    power cut    the machine dies. What was not on the disk is lost. It cannot be shown by a kill: the broker cuts its logs
                 back to what was flushed (`Broker.cut_power`), after a disk that hung (`faults.freeze`)
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from waterclock.clock import SystemClock
from waterclock.examples.lessons.clients import flush, producer, read, text
from waterclock.examples.lessons.lesson import Lesson
from waterclock.testing import Broker

ACKS = ("0", "1", "all")
KILLS = 3
BEFORE_KILL_S = 0.3
STANDS_STILL_S = 0.1
MESSAGE = "x" * 1000
CUT = 100  # messages before the power is cut
TOPIC = "acks"


def lesson(kills: int = KILLS) -> Lesson:
    """Kill a broker `kills` times for each acks, under load; then cut the power once for each."""
    killed = [case("kill -9", acks, [one_kill(acks) for _ in range(kills)]) for acks in ACKS]
    cut = [case("power cut", acks, [one_power_cut(acks)]) for acks in ACKS]
    return Lesson(
        "acks: messages reported as delivered to the producer, and gone after the crash",
        [*killed, *cut],
        [
            "acks=0: delivered means sent. Every crash loses what was on its way.",
            "acks=1: delivered means written. A killed process loses nothing, a power cut what was not flushed.",
            "acks=all: delivered means on the disk. Nothing that was reported as delivered is lost.",
            "The power cut is simulated: the logs are cut back to what was flushed.",
        ],
    )


def case(crash: str, acks: str, runs: list[tuple[int, int]]) -> dict[str, Any]:
    """A row of several crashes; each is (reported as delivered, of these gone)."""
    return {
        "crash": crash,
        "acks": acks,
        "crashes": len(runs),
        "told": sum(reported for reported, _ in runs),
        "lost": sum(lost for _, lost in runs),
        "lost each": [lost for _, lost in runs],
    }


def one_kill(acks: str) -> tuple[int, int]:
    """Send as fast as the broker takes it, kill the broker, start it again, count."""
    with tempfile.TemporaryDirectory() as folder:
        process, bootstrap = started(folder)
        load = Load(bootstrap, acks)
        load.run(BEFORE_KILL_S, lambda: stop_and_kill(process))
        process.wait()
        process, bootstrap = started(folder)
        try:
            return counted(load.reported, bootstrap)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def stop_and_kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    SystemClock().sleep_s(STANDS_STILL_S)
    process.kill()


def started(folder: str, *settings: str) -> tuple[subprocess.Popen[str], str]:
    """A broker in a process of its own; it says where it listens. Settings are `name=value`."""
    command = [sys.executable, "-P", "-m", "waterclock.cli", "broker", "--port", "0", "--data", folder]
    command += [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
    return process, line.split("ready on ")[1].split(",")[0]


def one_power_cut(acks: str) -> tuple[int, int]:
    """The disk hangs, messages are sent, the power goes."""
    with tempfile.TemporaryDirectory() as folder, Broker(folder) as broker:
        broker.create_topic(TOPIC)
        broker.faults.freeze(TOPIC)
        load = Load(broker.bootstrap, acks)
        load.send(CUT)
        load.wait(lambda: broker.statistics().records_in == CUT)
        broker.cut_power()
        load.end()
        broker.start()
        return counted(load.reported, broker.bootstrap)


def counted(reported: list[str], bootstrap: str) -> tuple[int, int]:
    there = {value.split()[0] for value in read(bootstrap, TOPIC)}
    return len(reported), len(set(reported) - there)


class Load:
    """Numbered messages, and which of them the producer was reported are delivered."""

    def __init__(self, bootstrap: str, acks: str) -> None:
        self._sender: Producer = producer(bootstrap, acks=acks, retries=0, linger_ms=1)
        self._clock = SystemClock()
        self._sent = 0
        self.reported: list[str] = []

    def run(self, duration_s: float, kill: Callable[[], None]) -> None:
        """Send until some time after the first was reported, `kill` while sending goes on, then give up what is left."""
        self.wait(lambda: self.sent_more() and bool(self.reported))
        killer = threading.Timer(duration_s, kill)
        killer.start()
        self.wait(lambda: self.sent_more() and not killer.is_alive())
        self.end()

    def send(self, count: int) -> None:
        for _ in range(count):
            with suppress(BufferError):  # its queue is full: the reports below make room
                self._sender.produce(TOPIC, f"{self._sent} {MESSAGE}", on_delivery=self._report)
                self._sent += 1

    def wait(self, over: Callable[[], bool]) -> None:
        """Take reports until it is over."""
        while not over():
            self._sender.poll(0.001)

    def end(self) -> None:
        """Take what was reported before; what is unanswered is given up."""
        self._sender.purge()
        flush(self._sender, 10)

    def sent_more(self) -> bool:
        """True, after some more were sent."""
        self.send(100)
        return True

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.reported.append(text(message).split()[0])

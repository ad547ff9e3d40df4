"""A capture in a process of its own that kills itself, with SIGKILL, before or after a numbered step.

python -m tests.cdc.kill_steps PORT KAFKA TOPIC DATABASE BEGIN STEP WHEN NUMBER TOPICS
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from waterclock.cdc.capture import Capture
from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.mysql.server import MySqlLogin
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import TableFilter, put_aside
from waterclock.clock import SystemClock


def killing(step: str, when: str, number: int) -> type[Publisher]:
    """A publisher that dies around the `number`th call of a step."""
    calls = 0

    def around(self: Publisher, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = getattr(Publisher, step)(self, *arguments)
        if calls == number:
            self._producer.producer.flush(10)  # what was sent has arrived: there is something to be thrown away
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return type("Killing", (Publisher,), {step: around})


def target_of(kafka: str, topic: str, topics: str) -> Target:
    """What cannot be read goes to a topic of its own."""
    return Target(kafka, topic, dead_letters=f"{topic}.aside", topics=topics)


def main(port: str, kafka: str, topic: str, database: str, begin: str, step: str, when: str, *more: str) -> None:
    number, topics = more
    login = MySqlLogin("127.0.0.1", int(port), "root", "", 4712)
    wanted, target = TableFilter([f"{database}.*"]), target_of(kafka, topic, topics)
    publisher = killing(step, when, int(number))
    Capture(
        lambda: publisher(target, topic),
        lambda position: BinlogReader(login, position, wanted, refusal=put_aside),
        SystemClock(),
        start=Position(begin),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

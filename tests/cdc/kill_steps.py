"""A capture in a process of its own that kills itself, with SIGKILL, before or after a numbered step.

python -m tests.cdc.kill_steps PORT KAFKA TOPIC DATABASE BEGIN STEP WHEN NUMBER TOPICS
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from waterclock.cdc.capture import Capture
from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.mysql.server import MySqlLogin
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import TableFilter, put_aside
from waterclock.clock import SystemClock


def killing(step: str, when: str, number: int) -> type[Publisher]:
    """A publisher that dies around the `number`th call of a step; each row of a snapshot's part is one of "send"."""
    calls = 0

    def begins() -> None:
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)

    def ended(self: Publisher) -> None:
        if calls == number:
            self._producer.producer.flush(10)  # what was sent has arrived: there is something to be thrown away
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self: Publisher, *arguments: Any) -> Any:
        begins()
        found = getattr(Publisher, step)(self, *arguments)
        ended(self)
        return found

    class Rows(OlderPart):
        publisher: Publisher

        def written(self) -> Iterator[tuple[bytes, bytes]]:
            for pair in super().written():
                begins()
                yield pair
                ended(self.publisher)

    def part(self: Publisher, rows: OlderPart) -> None:
        counted = Rows(rows.of, rows.rows)
        object.__setattr__(counted, "publisher", self)
        Publisher.send_part(self, counted)

    return type("Killing", (Publisher,), {step: around, **({"send_part": part} if step == "send" else {})})


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

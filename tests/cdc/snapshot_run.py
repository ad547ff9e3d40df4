"""A capture with a snapshot in a process of its own; it may kill itself, with SIGKILL, before or after a numbered step.

python -m tests.cdc.snapshot_run KIND SERVER KAFKA TOPIC PATTERN STEP WHEN NUMBER    SERVER: a port, or a conninfo
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.cdc.kill_steps import killing
from waterclock.cdc import snapshot
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.capture import Capture
from waterclock.cdc.mysql.chunks import BinlogChunks
from waterclock.cdc.mysql.mysql_chunks import MySqlChunks
from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.mysql.server import MySqlLogin, answer, inspected
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.chunks import SlotChunks
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.snapshot import WholePlace, beside
from waterclock.cdc.source import Source, TableFilter
from waterclock.clock import SystemClock

TERMS = Terms(snapshot=INITIAL)


def capture_of(
    kind: str, server: str, target: Target, pattern: str, publisher: type[Publisher] = Publisher
) -> tuple[Capture, Callable[[], WholePlace]]:
    """The capture, and what says where its source ends now, with what is older."""
    clock = SystemClock()
    begin: Callable[[], Position]
    if kind != "postgres":
        of_kind = BinlogChunks if kind == "mariadb" else MySqlChunks
        login, wanted = MySqlLogin("127.0.0.1", int(server), "root", "", 4713), TableFilter([pattern])

        def place() -> str:
            return answer(login, lambda cursor: inspected(cursor).place)

        def source(position: Position) -> Source:
            reader = BinlogReader(login, position, wanted, terms=TERMS)
            return beside(reader, lambda: of_kind(reader, login, clock), clock)

        begin = lambda: Position(place())  # noqa: E731
    else:
        slot, wanted = ReplicationSlot(server, target.topic, target.topic), TableFilter([pattern], OWN)

        def place() -> str:
            return current(slot)

        def source(position: Position) -> Source:
            reader = SlotReader(slot, position, wanted, clock, terms=TERMS)
            return beside(reader, lambda: SlotChunks(reader, slot, clock), clock)

        begin = lambda: begun(slot, [])  # noqa: E731
    capture = Capture(lambda: publisher(target, target.topic), source, clock, start=begin)
    return capture, lambda: WholePlace(place())


def main(kind: str, server: str, kafka: str, topic: str, pattern: str, step: str, when: str, number: str) -> None:
    snapshot.FIRST_ROWS = snapshot.LEAST_ROWS = snapshot.MOST_ROWS = 300  # so that there are many chunks
    publisher = killing(step, when, int(number)) if step else Publisher
    capture_of(kind, server, Target(kafka, topic), pattern, publisher)[0].run()


if __name__ == "__main__":
    main(*sys.argv[1:])

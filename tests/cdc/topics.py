"""A shop that writes, and the messages that its changes become."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.cdc.mariadb import MariaServer
from waterclock.cdc.capture import Capture
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import SystemClock


def shop(mariadb: MariaServer, database: str, rounds: int, odd: bool = False) -> None:
    """Transactions of several tables; keys change, rows go and come. `odd`: each has a row that cannot be read."""
    mariadb.run(
        f"create table if not exists {database}.item (id int primary key, price decimal(10,2))",
        f"create table if not exists {database}.sale (id bigint unsigned primary key, item int, at datetime(6))",
        f"create table if not exists {database}.note (n int auto_increment primary key, c char(9) character set ujis)",
    )
    with mariadb.connection() as connection, connection.cursor() as cursor:
        for n in range(rounds):
            for statement in (
                "begin",
                f"replace into {database}.item values ({n % 5}, {n}.25)",
                f"insert into {database}.sale values (uuid_short(), {n % 5}, now(6)), (uuid_short(), {n % 3}, null)",
                *([f"insert into {database}.note (c) values ('a'), (x'8fa2a1'), ('b')"] if odd else []),
                f"update {database}.sale set id = uuid_short() where item = {n % 2} limit 1",
                f"delete from {database}.sale where item = {n % 3} limit 1",
                "commit",
            ):
                cursor.execute(statement)


def capture_of(
    server: MariaServer, target: Target, begin: str, table: str, publisher: type[Publisher] = Publisher, **options: Any
) -> Capture:
    """From a server into a topic, under the topic's name; `options` are the reader's."""
    return Capture(
        lambda: publisher(target, target.topic),
        lambda position: server.reader(position, table, **options),
        SystemClock(),
        start=Position(begin),
    )


def messages(changes: Iterable[MaxwellMessage]) -> list[tuple[bytes, bytes]]:
    return [(change.as_key(), change.as_json()) for change in changes]

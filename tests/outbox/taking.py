"""What tests of the outbox share: a database to write to, what takes its rows, and what the relay's input has then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import psycopg
import pymysql
from confluent_kafka import TopicPartition

from tests.cdc.mariadb import MariaServer
from waterclock.clock import SystemClock
from waterclock.errors import WaterclockError
from waterclock.kafka import library
from waterclock.kafka.admin import Admin
from waterclock.kafka.client import committed
from waterclock.kafka.settings import READING, base_settings
from waterclock.outbox.taker import OutboxTaker
from waterclock.relay import Delays
from waterclock.relay.wire.topics import Topics, prepare

PATIENCE_S = 30.0


class Shop(Protocol):
    """A database: `url` as the command takes it, `connected` for a program."""

    url: str

    def opened(self) -> Any:
        """One that the caller closes."""

    def connected(self, **settings: Any) -> AbstractContextManager[Any]:
        """A connection that commits nothing by itself."""


class PostgresShop:
    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        given = psycopg.conninfo.conninfo_to_dict(conninfo)
        self.url = f"postgresql://{given['user']}@/{given['dbname']}?host={given['host']}"

    def opened(self) -> Any:
        """One that the caller closes."""
        return psycopg.connect(self.conninfo)

    def connected(self, **settings: Any) -> AbstractContextManager[Any]:
        return psycopg.connect(self.conninfo, **settings)


class MariaShop:
    def __init__(self, server: MariaServer, name: str) -> None:
        self._server, self._name = server, name
        self.url = f"mysql://root@127.0.0.1:{server.port}/{name}"

    def opened(self) -> Any:
        """One that the caller closes."""
        return pymysql.connect(host="127.0.0.1", port=self._server.port, user="root", database=self._name)

    def connected(self, **settings: Any) -> AbstractContextManager[Any]:
        connected: AbstractContextManager[Any] = self._server.connection(
            **{"autocommit": False, "database": self._name, **settings}
        )
        return connected


class Seen(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class Taking:
    """An outbox, and the input that its rows go to."""

    def __init__(self, shop: Shop, servers: str, topic: str, partitions: int = 1) -> None:
        self.shop, self.topics = shop, Topics.of(topic)
        self.settings = base_settings(servers, {})
        self.servers, self.lost = servers, list[WaterclockError]()
        prepare(Admin(self.settings), self.topics, partitions, servers)
        self.delays = Delays(None, topic)

    @contextmanager
    def following(self) -> Iterator[OutboxTaker]:
        """It has found its place in the database's log."""
        with self.taker() as made:
            until(lambda: any(not each.partition for each in self.seen(f"{self.topics.input}.outbox")))
            until(lambda: not self.rows())
            yield made

    @contextmanager
    def taker(self, poll_s: float | None = None) -> Iterator[OutboxTaker]:
        """It owns the input, and nothing goes wrong meanwhile."""
        made = OutboxTaker(self.shop.url, self.topics, self.settings, poll_s, self.lost.append)
        made.owns(True)
        try:
            yield made
            made.owns(True)
        finally:
            made.close()

    def take(self, count: int, poll_s: float | None = None) -> list[Seen]:
        """What the input has once it has so many records, and the table is empty."""
        with self.taker(poll_s):
            until(lambda: len(self.seen()) >= count and not self.rows())
        return self.seen()

    def seen(self, topic: str | None = None) -> list[Seen]:
        """The committed records, partition by partition."""
        name = topic or self.topics.input
        consumer = library.Consumer({**self.settings, **READING, "group.id": "unused"})
        found = list[Seen]()
        try:
            partitions = sorted(consumer.list_topics(name, timeout=10).topics[name].partitions)
            ends = [consumer.get_watermark_offsets(TopicPartition(name, each), timeout=10)[1] for each in partitions]
        finally:
            consumer.close()
        for partition, end in zip(partitions, ends, strict=True):
            for message in committed(self.settings, (name, partition), 0, end, SystemClock()):
                headers = {each: text or b"" for each, text in message.headers() or []}
                found.append(Seen(partition, message.key(), message.value(), headers))
        return found

    def write(self, *texts: str, commit: bool = True, **options: Any) -> None:
        """A transaction with a message for each text."""
        with self.shop.connected() as connection:
            for text in texts:
                self.delays.send("reminders", text, db=connection, **{"delay": "1 day", **options})
            connection.commit() if commit else connection.rollback()

    def rows(self) -> int:
        """How many rows the table has."""
        with self.shop.connected() as connection, connection.cursor() as cursor:
            cursor.execute("select count(*) from waterclock_outbox")
            (count,) = cursor.fetchone()
            return int(count)


def until(wanted: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.05)


def values(seen: list[Seen]) -> list[str]:
    return [(each.value or b"").decode() for each in seen]

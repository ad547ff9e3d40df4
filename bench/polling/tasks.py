"""The table of tasks, and who puts tasks into it.

Rule 1: the server has the settings of an installation, but for more memory; what is committed is on the disk.
Rule 2: due moments are whole microseconds since 1970, of this machine's clock, which is the database's too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg

from waterclock.bench.polling.poller import Connection
from waterclock.errors import WrongAnswer

SERVER: Final[Mapping[str, str]] = {"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "2GB"}
A_SECOND: Final = 100  # tasks, one by one
SOON_US: Final = 1_000
FAR_DAYS: Final = 100
PAYLOAD: Final = "x" * 100
MAKE: Final = """
    drop table if exists task;
    create table task (
        id bigint generated always as identity primary key,
        due timestamptz not null,
        payload text not null,
        done boolean not null default false,
        version int not null default 0
    )"""
FILL: Final = """
    insert into task (due, payload)
    select now() + %s * interval '1 day' + number * interval '1 ms', %s from generate_series(1, %s) number"""
ADD: Final = "insert into task (due, payload) values (%s, %s) returning id"
BURST: Final = "insert into task (due, payload) select %s, %s from generate_series(1, %s) returning id"
Dues = dict[int, int]  # task: its due moment


def connected(url: str) -> Connection:
    """A connection on which each statement commits."""
    return psycopg.connect(url, autocommit=True)


def settings(connection: Connection) -> dict[str, str]:
    """What the server says of itself; WrongAnswer where a commit is not on the disk when it is answered."""
    asked = ("server_version", "fsync", "synchronous_commit", *sorted({*SERVER} - {"fsync"}))
    found = {name: str(connection.execute(f"show {name}").fetchall()[0][0]) for name in asked}
    if (found["fsync"], found["synchronous_commit"]) != ("on", "on"):
        raise WrongAnswer(f"PostgreSQL does not flush what it commits: fsync is {found['fsync']}")
    return found


def make(connection: Connection, pending: int) -> None:
    """A new table with so many tasks that are due in 100 days."""
    connection.execute(MAKE)
    connection.execute(FILL, [FAR_DAYS, PAYLOAD, pending])
    connection.execute("create index on task (due) where not done")
    connection.execute("vacuum analyze task")


def clear(connection: Connection) -> None:
    """Remove what was done, and all that it left behind in the table and its index."""
    connection.execute("delete from task where done")
    connection.execute("vacuum analyze task")


def waiting(connection: Connection) -> int:
    """Tasks that are not done."""
    (row,) = connection.execute("select count(*) from task where not done").fetchall()
    return row[0]


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def moment(at_us: int) -> datetime:
    """What the database takes.

    >>> moment(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def spread_s(seconds: float) -> list[float]:
    """Moments at random, `A_SECOND` of them a second, the same ones in every run.

    >>> found = spread_s(2)
    >>> len(found), 0 <= found[0] < found[-1] < 2
    (200, True)
    """
    draw = random.Random(1)
    return sorted(draw.random() * seconds for _ in range(max(1, round(seconds * A_SECOND))))


def add_some(connection: Connection, seconds: float) -> Dues:
    """Tasks one by one at random moments, each due a millisecond after it is sent: a commit each."""
    began_s, dues = time.monotonic(), Dues()
    for at_s in spread_s(seconds):
        time.sleep(max(0.0, began_s + at_s - time.monotonic()))
        due_us = now_us() + SOON_US
        (row,) = connection.execute(ADD, [moment(due_us), PAYLOAD], prepare=True).fetchall()
        dues[row[0]] = due_us
    return dues


def add_burst(connection: Connection, tasks: int, due_us: int) -> Dues:
    """So many tasks that are due at one moment, in one commit."""
    rows = connection.execute(BURST, [moment(due_us), PAYLOAD, tasks]).fetchall()
    return Dues.fromkeys((row[0] for row in rows), due_us)

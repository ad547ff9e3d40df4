"""A program that places orders, to be killed: URL TOPIC FIRST LAST. Each order is one transaction: its row in `orders`,
with what is to be delivered of it, if anything, and its requests; every other one is rolled back.

Rule 1: what an order is follows from its number alone. The number is printed before its transaction begins.
Rule 2: whatever the database says, the next number has a connection of its own, once there is one.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing, suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql

from waterclock.relay import Delays

TARGET: Final = "reminders"
ORDERS: Final = (
    "create table if not exists orders (id integer primary key, due_ms bigint not null, delivers varchar(40))"
)
PAUSE_S: Final = 0.005


def connected(url: str) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "postgresql":
        return psycopg.connect(url)
    where = {"host": parts.hostname, "port": parts.port, "user": unquote(parts.username or "")}
    return pymysql.connect(**where, database=parts.path.strip("/"), autocommit=False, ssl_disabled=True)


def order(delays: Delays, db: Any, number: int) -> None:
    """One transaction: half of them are rolled back; of the others some cancel or replace what they have sent."""
    delay_ms, text, id = 200 + number * 7919 % 2000, f"order {number}", f"order-{number}"
    kind = number // 2 % 5
    delivers = {3: None, 4: f"{text} replaced"}.get(kind, text)
    due_ms = time.time_ns() // 1_000_000 + delay_ms
    with db.cursor() as cursor:
        cursor.execute("insert into orders values (%s, %s, %s)", (number, due_ms, delivers))
    delays.send(TARGET, text, delay=f"{delay_ms} ms", id=id, key=f"k{number % 7}" if kind else None, db=db)
    named = {"key": f"k{number % 7}" if kind else None, "db": db}
    if kind == 3:
        delays.cancel(id, **named)
    elif kind == 4:
        delays.replace(id, TARGET, delivers, delay=f"{delay_ms} ms", **named)
    db.rollback() if number % 2 else db.commit()


def main(url: str, topic: str, first: str, last: str) -> None:
    delays, db, number = Delays(None, topic), None, int(first)
    while number <= int(last):
        try:
            if db is None:
                db = connected(url)
                with db.cursor() as cursor:
                    cursor.execute("select count(*) from orders")
                db.rollback()
            print(number, flush=True)
            number += 1
            order(delays, db, number - 1)
        except (psycopg.Error, pymysql.MySQLError):
            if db is not None:
                with suppress(psycopg.Error, pymysql.MySQLError), closing(db):
                    pass
            db = None
            time.sleep(0.1)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])

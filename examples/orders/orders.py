"""A saga with timeouts in three functions: an order is placed, reminded of after a day, cancelled after three unless paid.

    python -m examples.orders.orders place DATABASE NUMBER
    python -m examples.orders.orders pay DATABASE NUMBER
    python -m examples.orders.orders serve DATABASE BOOTSTRAP       with `waterclock relay --outbox DATABASE` beside it

Rule 1: a row and the message that follows from it are one transaction: there is no order without its reminder, and no
        reminder without its order.
Rule 2: a handler's rows, its next message, and that its own message is done are one transaction.
Rule 3: a payment cancels what is pending. What is delivered already finds the order paid, and does nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import psycopg

from waterclock.relay import Delays, Delivery

DAY_MS: Final = int(os.environ.get("DAY_MS", "86400000"))  # a day of the shop's; shorter where it is tried
TABLES: Final = """
    CREATE TABLE orders (number integer PRIMARY KEY, state text NOT NULL);
    CREATE TABLE history (number integer, what text)
"""


def place(delays: Delays, db: Any, number: int) -> None:
    """A new order, which is reminded of after a day."""
    db.execute("INSERT INTO orders VALUES (%s, 'placed')", (number,))
    note(db, number, "placed")
    delays.send("remind", str(number), delay=f"{DAY_MS} ms", key=str(number), id=f"order-{number}", db=db)


def remind(delays: Delays, db: Any, number: int) -> None:
    """After a day: a reminder, and two days to pay."""
    if state(db, number) == "placed":
        note(db, number, "reminded")
        delays.send("expire", str(number), delay=f"{2 * DAY_MS} ms", key=str(number), id=f"order-{number}", db=db)


def expire(delays: Delays, db: Any, number: int) -> None:
    """After three days: an order that is not paid is cancelled."""
    if state(db, number) == "placed":
        db.execute("UPDATE orders SET state = 'cancelled' WHERE number = %s", (number,))
        note(db, number, "cancelled")


def pay(delays: Delays, db: Any, number: int) -> None:
    """A payment: nothing more is to come of the order."""
    if state(db, number) == "placed":
        db.execute("UPDATE orders SET state = 'paid' WHERE number = %s", (number,))
        note(db, number, "paid")
        delays.cancel(f"order-{number}", key=str(number), db=db)


def state(db: Any, number: int) -> str:
    """Of an order, which nobody else changes until this transaction has ended."""
    row = db.execute("SELECT state FROM orders WHERE number = %s FOR UPDATE", (number,)).fetchone()
    return str(row[0]) if row else "unknown"


def note(db: Any, number: int, what: str) -> None:
    db.execute("INSERT INTO history VALUES (%s, %s)", (number, what))


def serve(database: str, bootstrap: str) -> None:
    """Call the two functions with what is due, until Ctrl-C."""
    with Delays(bootstrap) as delays:

        @delays.handler("remind", database=database)
        def reminding(delivery: Delivery, db: Any) -> None:
            remind(delays, db, int(delivery.text))

        @delays.handler("expire", database=database)
        def expiring(delivery: Delivery, db: Any) -> None:
            expire(delays, db, int(delivery.text))

        delays.run()


def main(what: str, database: str, argument: str) -> None:
    if what == "serve":
        serve(database, argument)
        return
    delays = Delays()  # it writes to the database alone
    with psycopg.connect(database) as db:  # which commits at the end of the block, or rolls back
        {"place": place, "pay": pay}[what](delays, db, int(argument))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A program with a handler that writes to PostgreSQL, to be killed: BOOTSTRAP TOPIC TARGET DATABASE TABLE.

Each message whose text ends with 7 fails at its first attempt.
"""

from __future__ import annotations

import sys
from typing import Any

from waterclock.relay import Delays, Delivery


def main(bootstrap: str, topic: str, target: str, database: str, table: str) -> None:
    delays = Delays(bootstrap, topic)

    @delays.handler(target, database=database, waits=("50 ms",))
    def write(delivery: Delivery, db: Any) -> None:
        db.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", (delivery.id, delivery.text, delivery.attempt))
        if delivery.text.endswith("7") and delivery.attempt == 1:
            raise ValueError("not yet")

    delays.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

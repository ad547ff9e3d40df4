"""examples/orders, killed with SIGKILL at a step: STEP NUMBER, then what the example takes.

A step is row (a row of the function's is written), sent (its message is a row too), before or after (the commit). It dies
when it gets there for the NUMBERth time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg
from examples.orders import orders

from waterclock.postgres.session import PostgresSession
from waterclock.relay import Delays

LEFT = 0


def dying(step: str, now: str, real: Callable[..., Any], *, first: bool = False) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if first:
            die(step, now)
        told = real(*arguments, **named)
        if not first:
            die(step, now)
        return told

    return call


def die(step: str, now: str) -> None:
    global LEFT
    LEFT -= step == now
    if step == now and LEFT <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def main(step: str, number: str, *arguments: str) -> None:
    global LEFT
    LEFT = int(number)
    orders.note = dying(step, "row", orders.note)
    for name in ("send", "cancel"):
        setattr(Delays, name, dying(step, "sent", getattr(Delays, name)))
    session, own = PostgresSession.commit, psycopg.Connection.commit
    PostgresSession.commit = dying(step, "before", dying(step, "after", session), first=True)  # type: ignore[method-assign]
    psycopg.Connection.commit = dying(step, "before", dying(step, "after", own), first=True)  # type: ignore[method-assign]
    orders.main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])

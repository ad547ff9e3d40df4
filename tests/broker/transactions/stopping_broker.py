"""A broker in a process of its own that dies at a numbered step of a transaction's end (markers.py), as by kill -9.

    python -m tests.broker.transactions.stopping_broker DATA STEP

Rule 1: the product knows nothing of this: a method of its own is replaced by one that ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from waterclock.broker import Broker
from waterclock.broker.transactions.ledger import TransactionLedger
from waterclock.broker.transactions.markers import DelayedMarkers, MarkerWriter
from waterclock.broker.transactions.record import TransactionRecord


def die(*arguments: Any, **more: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def before_the_decision() -> None:
    step = TransactionLedger.step
    TransactionLedger.step = lambda self, transaction, record, *more: (  # type: ignore[method-assign, misc, assignment]
        step if record.state == "Empty" else die
    )(self, transaction, record, *more)


def after_the_decision() -> None:
    MarkerWriter._settle_groups = die  # type: ignore[method-assign]


def before_the_markers() -> None:
    MarkerWriter.mark = die  # type: ignore[method-assign]


def after_the_first_marker() -> None:
    write, done = MarkerWriter.write, []

    def once(self: MarkerWriter, *arguments: Any) -> Any:
        if done:
            die()
        done.append(write(self, *arguments))
        return done[0]

    MarkerWriter.write = once  # type: ignore[method-assign]


def after_the_markers() -> None:
    DelayedMarkers.try_complete = die  # type: ignore[method-assign]


def before_the_answer() -> None:
    TransactionRecord.completed = die  # type: ignore[method-assign]


STEPS: dict[str, Callable[[], None]] = {
    "before 1": before_the_decision,
    "between 1 and 2": after_the_decision,
    "between 2 and 3": before_the_markers,
    "in 3": after_the_first_marker,
    "between 3 and 4": after_the_markers,
    "in 4": before_the_answer,
}

if __name__ == "__main__":
    STEPS[sys.argv[2]]()
    broker = Broker(sys.argv[1]).start()
    print(broker.bootstrap, flush=True)
    signal.pause()

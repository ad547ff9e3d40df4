"""Whose turn it is to write: a number that rises each time a run takes a checkpoint over, kept in the sink itself.

A run that stood still while another one took over wakes up in the middle of a batch, and knows nothing of it. No lock and
no lease helps there: it was paused behind its look at them. So a run that may be taken over tells the sink its epoch at the
start (`fence`), in a transaction; and each batch looks, in its own transaction, whether the epoch that stands there is its
own still (`judge`). After a larger one was told, nothing of a smaller one is committed.

    <table>_owner      lineage, epoch: one row, in the databases; made when it is first needed
    Delta Lake         an application transaction `waterclock-owner LINEAGE` of each table, whose version is the epoch
    Iceberg            a property `waterclock.owner.LINEAGE` of each table, told with an empty commit of rows
    a topic            a record of TOPIC_batches; who begins fences the producer of whoever wrote before, and reads it

Rule 1: epochs are compared within one lineage alone, the history of one checkpoint's owners. Another lineage is another
        checkpoint: whoever told the sink last is the one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from waterclock.errors import StateMismatch

log = logging.getLogger(__name__)
OWNER = "_owner"
OWNER_NAMES = ("lineage", "epoch")


@dataclass(frozen=True, slots=True)
class Epoch:
    """The number of an ownership, and the checkpoint's history that it belongs to."""

    lineage: str
    number: int


class Run(Protocol):
    """How a statement is run in the transaction that is open; it gives its rows."""

    def __call__(self, statement: str, /) -> Sequence[Sequence[Any]]: ...


def may_follow(found: Epoch | None, own: Epoch, what: str) -> None:
    """Raise StateMismatch where the run of `own` may not begin: the sink `what` was told of a later one."""
    if found is not None and found.lineage == own.lineage and found.number > own.number:
        raise _taken_over(what, found, own)


def judge(found: Epoch | None, own: Epoch | None, what: str) -> None:
    """Raise StateMismatch where it is another run's turn to write to the sink `what`; nothing without an own epoch."""
    if own is not None and found != own:
        raise _taken_over(what, found, own)


def _taken_over(what: str, found: Epoch | None, own: Epoch) -> StateMismatch:
    by = "nobody, for its table of owners is gone" if found is None else f"the run of epoch {found.number}"
    return StateMismatch(
        f"{what} belongs to {by}, and this run has epoch {own.number}: another run took the checkpoint over while "
        "nothing was heard of this one. Nothing of this batch was written; start again when the other one has ended"
    )


def fence(sink: object, epoch: Epoch | None) -> None:
    """Tell `sink` that it is the turn of `epoch`; a warning where it keeps none. StateMismatch after a later one."""
    if epoch is None:
        return
    tell = getattr(sink, "fence", None)
    if callable(tell):
        tell(epoch)
    else:
        log.warning(
            "%s keeps no epochs: a run that stands still while another one takes the checkpoint over may write one batch "
            "more when it wakes up",
            type(sink).__name__,
        )


# In a database ---------------------------------------------------------------------------------------------------


def stored_in(run: Run, table: str) -> Epoch | None:
    """The epoch that stands in `table`."""
    rows = run(f'SELECT "lineage", "epoch" FROM {table}')
    return Epoch(str(rows[0][0]), int(rows[0][1])) if rows else None


def store_in(run: Run, table: str, own: Epoch, what: str) -> None:
    """Tell the sink `what` of `own` in the transaction that is open; StateMismatch where it was told of a later one."""
    may_follow(stored_in(run, table), own, what)
    run(f"DELETE FROM {table}")
    run(f"INSERT INTO {table} VALUES ('{own.lineage}', {own.number})")

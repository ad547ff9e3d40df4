"""Transactions that take too long, and names that nobody uses any more.

    DelayedTransaction   leaves it by                             then
    waiting              the transaction's end is decided         completed
                         transaction.timeout.ms after its begin   expired: it is aborted, its producer shut out

Rule 1: the timeout counts from the first partition or group, and goes on over a restart: it is a date in the store.
Rule 2: if the abort cannot be written down, it is tried again every second.
Rule 3: a name's expiration is one timer that looks when it was used last: a transaction moves no timer of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from waterclock.broker.store import Then
from waterclock.broker.transactions.ledger import Transaction
from waterclock.broker.transactions.markers import RETRY_S
from waterclock.broker.transactions.states import IDLE, TransactionState
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.timer import AsyncTimer


class DelayedTransaction:
    """An open transaction. `late(transaction)` is called when its time is up."""

    __slots__ = ("_late", "_transaction")

    def __init__(self, transaction: Transaction, late: Callable[[Transaction], Any]) -> None:
        self._transaction, self._late = transaction, late

    def try_complete(self, op: DelayedOperation | None) -> bool:
        """Whether it is open no more. This is asked at every decision: the next transaction has an operation of its own."""
        return self._transaction.record.state is not TransactionState.ONGOING

    def on_complete(self, op: DelayedOperation) -> None:
        """Nobody waits for an answer."""

    def on_expire(self, op: DelayedOperation) -> None:
        if not self.try_complete(op):
            self._late(self._transaction)


class Timeouts:
    """`abort(transaction)` ends one that is late; `forget(transaction, then)` one that nobody used for `expiration_ms`."""

    def __init__(
        self,
        purgatory: Purgatory,
        timer: AsyncTimer,
        wall_ms: Callable[[], int],
        expiration_ms: int,
        abort: Callable[[Transaction], Any],
        forget: Callable[[Transaction, Then], Any],
    ) -> None:
        self._purgatory = purgatory
        self._timer = timer
        self._wall_ms = wall_ms
        self._expiration_ms = expiration_ms
        self._abort = abort
        self._forget = forget

    def begin(self, transaction: Transaction) -> None:
        """It is open; its time runs."""
        record = transaction.record
        self._wait(transaction, (record.started_ms + record.timeout_ms - self._wall_ms()) / 1000)

    def over(self, transaction: Transaction) -> None:
        """Its end is decided."""
        self._purgatory.check_and_complete(transaction.name)

    def again(self, transaction: Transaction) -> None:
        """It could not be aborted just now."""
        self._wait(transaction, RETRY_S)

    def _wait(self, transaction: Transaction, timeout_s: float) -> None:
        delayed = DelayedTransaction(transaction, self._abort)
        op = DelayedOperation(delayed.try_complete, delayed.on_complete, timeout_s, delayed.on_expire)
        self._purgatory.try_complete_else_watch(op, (transaction.name,))

    # Expiration of names

    def expect(self, transaction: Transaction) -> None:
        """A name is known now; it is forgotten when nobody uses it."""
        left_ms = transaction.record.updated_ms + self._expiration_ms - self._wall_ms()
        self._timer.call_later(max(left_ms, 1) / 1000, self._look, transaction)

    def _look(self, transaction: Transaction) -> None:
        def again(done: bool) -> None:
            if not done:  # it could not be forgotten just now
                self._timer.call_later(RETRY_S, self._look, transaction)

        record = transaction.record
        if record.updated_ms + self._expiration_ms > self._wall_ms():
            self.expect(transaction)
        elif record.state in IDLE and not transaction.busy:
            self._forget(transaction, again)
        else:
            again(False)

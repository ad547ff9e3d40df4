"""Transactions that append to several keys at once, some aborted, some that read in between what others committed.

Rule 1: what is asked again for as long as the client says so (a commit, an abort) has one outcome: the last one.
Rule 2: a transaction whose commit was asked for and ended in a fatal error is unknown. One whose commit was not asked for
    is aborted, whoever ends it.
Rule 3: who is fenced gives up, or comes back with the same id where it is told so ("again").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from tests.broker.consistency.worker import TRANSACTION_MS, Worker, places, rows

ABORTS, READS, RESTS = 0.15, 0.4, 0.03
PAUSE_S, REST_S = 0.1, 2.0


def transactor(worker: Worker) -> None:
    settings = {"group_id": "none", "enable_auto_commit": False, "isolation_level": "read_committed"}
    consumer = Consumer(worker.client(**settings, auto_offset_reset="earliest"))  # a reset is seen: it goes back
    consumer.assign(places("lists", offset=-1))  # what is new
    while not worker.stopping.is_set():
        Instance(worker, consumer).run()
        if not worker.given.get("again"):
            break
        worker.pause(4)


def ready(worker: Worker, producer: Producer) -> int:
    """The number of an init that went well; 0 where the worker is to end, or the producer cannot be used.

    However often the client asks, it is one init: any of its requests may be the one that fenced others.
    """
    number = worker.history.begin("init", id=worker.given["id"])
    while not worker.stopping.is_set():
        worker.alive()
        try:
            producer.init_transactions(10)
            worker.history.end(number, "ok")
            return number
        except KafkaException as error:
            if not error.args[0].retriable():
                break
    worker.history.end(number, "unknown")
    return 0


def settled(worker: Worker, what: str, deed: Callable[[float], Any]) -> str:
    """done, abort or fatal, once the client does not want it again; errors stand in the history."""
    while True:
        worker.alive()
        try:
            deed(10)
            return "done"
        except KafkaException as error:
            worker.history.tell("error", what=what, error=str(error))
            if not error.args[0].retriable():
                return "abort" if error.args[0].txn_requires_abort() else "fatal"


class Instance:
    """One producer's life with its transactional id."""

    def __init__(self, worker: Worker, consumer: Consumer) -> None:
        self.worker, self.consumer = worker, consumer
        settings = {"transactional_id": worker.given["id"], "transaction_timeout_ms": TRANSACTION_MS}
        self.producer = Producer(worker.client(**settings))

    def run(self) -> None:
        self.number = ready(self.worker, self.producer)
        while self.number and not self.worker.stopping.is_set() and self.transaction():
            self.worker.pause(PAUSE_S)

    def transaction(self) -> bool:
        """Whether the producer can go on."""
        dice, history = self.worker.random, self.worker.history
        self.worker.alive()
        writes = [self.worker.write("lists") for _ in range(dice.randint(1, 6))]
        number = history.begin("txn", id=self.worker.given["id"], instance=self.number, writes=writes)
        told: dict[str, Any] = {"reads": [], "results": [None] * len(writes)}
        if not self._append(writes, told):
            return self._abort(number, told)
        if dice.random() < ABORTS:
            return self._abort(number, told)
        history.committing(number)
        how = settled(self.worker, "commit", self.producer.commit_transaction)
        if how == "done":
            history.end(number, "ok", **told)
        elif how == "abort":
            return self._abort(number, told)
        else:
            history.end(number, "unknown", **told)
        return how == "done"

    def _append(self, writes: list[list[Any]], told: dict[str, Any]) -> bool:
        try:
            self.producer.begin_transaction()
            for place, (topic, partition, key, value) in enumerate(writes):
                self.producer.produce(topic, str(value), key, partition, on_delivery=_taker(told["results"], place))
                if self.worker.random.random() < READS:
                    told["reads"] += self._read()
            if self.worker.random.random() < RESTS:
                self.worker.pause(REST_S)
            return True
        except KafkaException:
            return False

    def _read(self) -> list[list[Any]]:
        self.producer.poll(0)
        found = rows([one for one in [self.consumer.poll(0.01)] + [self.consumer.poll(0) for _ in range(50)] if one])
        if found:
            self.worker.history.tell("poll", session="in transactions", isolation="read_committed", rows=found)
        return found

    def _abort(self, number: int, told: dict[str, Any]) -> bool:
        how = settled(self.worker, "abort", self.producer.abort_transaction)
        outcome = "fail" if how == "done" else "unknown"
        self.worker.history.end(number, outcome, **{**told, "results": None})
        return how == "done"


def _taker(offsets: list[Any], place: int) -> Callable[[Any, Any], None]:
    def taken(error: Any, message: Any) -> None:
        if error is None:
            offsets[place] = message.offset()

    return taken

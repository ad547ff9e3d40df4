"""A producer that was replaced under its transactional id: it is given nothing any more, and changes nothing.

Apache Kafka lets two in: one that ends by protocol 2 into the epoch of a successor that ended by protocol 1, and one that
claims the name with an old epoch into the successor's open transaction, which it aborts.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.transactions.client import Client, Id, batch
from waterclock.broker import Broker
from waterclock.broker.transactions.record import LAST_EPOCH, TransactionRecord, TransactionState, verdict
from waterclock.broker.wire.errors import Error

PROTOCOL = {1: 4, 2: 5}  # versions of EndTxn


def transaction(client: Client, producer: Id, text: str = "a") -> None:
    assert client.add("n", producer, "t") == ["NONE"]
    assert client.produce("n", "t", batch(text, producer, 0))[0] == "NONE"


@pytest.mark.parametrize("commit", [True, False])
def test_who_ends_by_protocol_2_is_not_given_the_epoch_of_a_successor_that_ends_by_protocol_1(
    client: Client, commit: bool
) -> None:
    old, new = client.ready("n"), client.ready("n")
    transaction(client, new)
    assert client.end("n", new, commit) == "NONE"
    assert client.end("n", old, commit, version=5) == ("PRODUCER_FENCED", Id(-1, -1))
    transaction(client, new, "b")
    assert client.end("n", new) == "NONE"


def test_nor_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
        old, new = client.ready("n"), client.ready("n")
        transaction(client, new)
        assert client.end("n", new) == "NONE"
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        assert client.end("n", old, version=5) == ("PRODUCER_FENCED", Id(-1, -1))


def test_nor_where_the_successor_has_another_producer_id() -> None:
    last = Id(5, LAST_EPOCH)
    ended = TransactionRecord(1000, 5, LAST_EPOCH).rotated(6, None, 1000, 0).joined_by([("t", 0)], [], 0)
    ended = ended.decided(True, 1, -1, 0).completed()
    assert (ended.producer_id, ended.previous_id, ended.epoch) == (6, 5, 0)
    assert verdict(ended, False, last, True, 2) == Error.INVALID_PRODUCER_ID_MAPPING  # type: ignore[arg-type]


def test_an_old_epochs_claim_does_not_abort_what_its_successor_has_open(client: Client) -> None:
    old, new = client.ready("n"), client.ready("n")
    transaction(client, new)
    assert client.init("n", last=old) == ("PRODUCER_FENCED", Id(-1, -1))
    assert client.state("n") == TransactionState.ONGOING
    assert client.end("n", new) == "NONE"
    assert client.committed("t") == ["a"]


class Owners:
    """Producers of one name, each of which claims it, uses it, and asks again with whatever it had before."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._name, self._rng = name, rng
        self._had: dict[int, list[Id]] = {0: [], 1: []}
        self._owner: dict[Id, int] = {}
        self._latest: int | None = None

    def _given(self, who: int, producer: Id) -> None:
        assert self._owner.setdefault(producer, who) == who, (self._name, who, producer)
        self._had[who].append(producer)

    def step(self, client: Client) -> None:
        rng, who, name = self._rng, self._rng.randrange(2), self._name
        had = self._had[who]
        deed = rng.choices(("claim", "again", "transaction", "end"), (1, 1, 4, 6))[0]
        if deed == "claim" or not had:
            error, producer = client.init(name)
            if error == "NONE":
                self._latest = who
                self._given(who, producer)
            return
        mine, protocol = rng.choice((had[-1], had[-1], had[len(had) // 2])), rng.choice((1, 2))
        if deed == "again":
            error, producer = client.init(name, last=mine)
        elif deed == "transaction":
            error, producer = client.add(name, mine, "t")[0], mine
        elif protocol == 2:
            error, producer = client.end(name, mine, rng.random() < 0.5, PROTOCOL[2])
        else:
            error, producer = client.end(name, mine, rng.random() < 0.5), mine
        if error == "NONE":
            assert self._latest == who, (name, who, deed)
            self._given(who, producer)


def test_whatever_a_replaced_producer_asks_for_it_is_refused(tmp_path: Path) -> None:
    dice = [Owners(f"n{seed}", random.Random(seed)) for seed in range(40)]
    with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
        client.create("t")
    for _ in range(4):  # what is known of a name is known after a restart
        with Broker(tmp_path) as broker, Client(broker.bootstrap) as client:
            for owners in dice:
                for _ in range(15):
                    owners.step(client)

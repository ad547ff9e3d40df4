"""Rows of an outbox into the relay's input: if and only if they are committed, once, in the order of their commits."""

from __future__ import annotations

import pytest

from tests.outbox.taking import PostgresShop, Shop, Taking, until, values
from waterclock.errors import ConnectionLost, UsageError
from waterclock.outbox.log import OutboxLog
from waterclock.outbox.table import OutboxTable
from waterclock.testing import Broker

POLLED = 0.1


@pytest.mark.always
def test_what_is_committed_is_there_once_and_what_is_rolled_back_is_not(taking: Taking) -> None:
    with taking.following():
        taking.write("a", "b")
        taking.write("never", commit=False)
        taking.write("c")
        until(lambda: len(taking.seen()) == 3 and not taking.rows())
    seen = taking.seen()
    assert values(seen) == ["a", "b", "c"]
    origins = [each.headers["outbox-from"].split() for each in seen]
    assert origins[0][0] == origins[1][0] != origins[2][0]  # the transaction
    assert len({number for _, number in origins}) == 3
    assert taking.lost == []


def test_transactions_come_in_the_order_of_their_commits(taking: Taking) -> None:
    with taking.following(), taking.shop.connected() as early, taking.shop.connected() as late:
        taking.delays.send("t", "first row", delay="1 day", db=early)
        taking.delays.send("t", "second row", delay="1 day", db=late)
        late.commit()
        early.commit()
        until(lambda: len(taking.seen()) == 2)
    assert values(taking.seen()) == ["second row", "first row"]


@pytest.mark.parametrize("poll_s", [None, POLLED])
def test_rows_that_are_older_than_the_relay_come_once(taking: Taking, poll_s: float | None) -> None:
    OutboxTable(taking.shop.url, taking.topics.input, "any").make()
    taking.write("old", "older")
    assert values(taking.take(2, poll_s)) == ["old", "older"]
    taking.write("new")
    assert values(taking.take(3, poll_s)) == ["old", "older", "new"]


@pytest.mark.parametrize("step", ["send", "commit", "remove"])
def test_a_crash_at_a_step_takes_nothing_twice(taking: Taking, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka, or the database, goes away at the step; the next start has all that was written."""
    assert taking.take(0) == []
    where = OutboxTable if step == "remove" else OutboxLog

    def lost(*arguments: object) -> None:
        raise ConnectionLost("gone")

    with monkeypatch.context() as patched, taking.taker():
        taking.write("a")
        patched.setattr(where, step, lost)
        until(lambda: len(taking.lost) > 1)
    taking.lost.clear()
    taking.write("b")
    assert values(taking.take(2)) == ["a", "b"]
    assert taking.lost == []


@pytest.mark.postgres
def test_a_first_start_that_ends_between_slot_and_place_takes_nothing_twice(
    postgres_shop: PostgresShop, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking(postgres_shop, broker.bootstrap, "halfway")
    OutboxTable(postgres_shop.url, "halfway", "any").make()
    taking.write("a")

    def lost(*arguments: object) -> None:
        raise ConnectionLost("gone")

    with monkeypatch.context() as patched, taking.taker():
        patched.setattr(OutboxLog, "commit", lost)
        until(lambda: len(taking.lost) > 0)
    taking.write("b")  # the slot is there: it comes by the log, and is in the table
    assert values(taking.take(2)) == ["a", "b"]


def test_polling_takes_a_portion_once_though_its_rows_could_not_be_removed(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: object) -> None:
        raise ConnectionLost("gone")

    OutboxTable(taking.shop.url, taking.topics.input, "any").make()
    taking.write("a")
    with monkeypatch.context() as patched, taking.taker(POLLED):
        patched.setattr(OutboxTable, "remove", lost)
        until(lambda: len(taking.lost) > 1)
    assert taking.rows() == 1
    assert values(taking.take(1, POLLED)) == ["a"]


def test_polling_is_refused_behind_the_databases_log(taking: Taking) -> None:
    with taking.following():
        pass
    with taking.taker(POLLED):
        until(lambda: bool(taking.lost))
    assert isinstance(taking.lost[0], UsageError)
    assert "Leave --outbox-poll out" in str(taking.lost[0])


def test_a_row_of_another_relay_stays(taking: Taking) -> None:
    with taking.following():
        with taking.shop.connected() as connection, connection.cursor() as cursor:
            cursor.execute("insert into waterclock_outbox (relay, headers) values ('another', '[]')")
            connection.commit()
        taking.write("mine")
        until(lambda: len(taking.seen()) == 1 and taking.rows() == 1)


def test_what_is_no_request_or_too_large_becomes_a_dead_letter(taking: Taking) -> None:
    with taking.following():
        with taking.shop.connected() as connection, connection.cursor() as cursor:
            insert = "insert into waterclock_outbox (relay, message_value, headers) values (%s, 'v', '{}')"
            cursor.execute(insert, (taking.topics.input,))
            taking.delays.send("t", b"x" * 1_100_000, delay="1 day", db=connection)
            taking.delays.send("t", "good", delay="1 day", db=connection)
            connection.commit()
        until(lambda: len(taking.seen()) == 1 and taking.rows() == 1)  # the large one stays
    malformed, large = taking.seen(taking.topics.dead)
    assert malformed.value == b"v"
    assert malformed.headers["dead-reason"] == b"its headers are no list of pairs of texts: '{}'."
    assert large.value is None
    assert b"it stays in the table" in large.headers["dead-reason"]
    with taking.taker():
        taking.write("last")
        until(lambda: len(taking.seen()) == 2 and taking.rows() == 1)
    assert len(taking.seen(taking.topics.dead)) == 2


def test_a_key_an_id_and_a_cancel_go_where_a_client_sends_them(shop: Shop, broker: Broker) -> None:
    taking = Taking(shop, broker.bootstrap, f"wide-{shop.url.partition(':')[0]}", partitions=3)
    with taking.following():
        taking.write("by key", key="cart-17")
        taking.write("by id", id="cart-17")
        with taking.shop.connected() as connection:
            taking.delays.cancel("cart-17", db=connection)
            taking.delays.cancel("cart-17", key="cart-17", db=connection)
            taking.delays.replace("cart-17", "t", "replaced", delay="1 day", key=b"cart-17", db=connection)
            connection.commit()
        until(lambda: len(taking.seen()) == 7)
    seen = [(each.partition, each.headers.get("delay-action"), (each.value or b"").decode()) for each in taking.seen()]
    assert seen == [
        (0, b"cancel", ""),
        (1, None, "by key"),
        (1, None, "by id"),
        (1, b"cancel", ""),
        (1, b"cancel", ""),
        (1, b"replace", "replaced"),
        (2, b"cancel", ""),
    ]


def test_who_does_not_own_the_input_takes_nothing(taking: Taking) -> None:
    with taking.following() as taker:
        taker.owns(False)
        with taking.taker():
            taking.write("once")
            until(lambda: len(taking.seen()) == 1)
            taker.owns(False)
    assert values(taking.seen()) == ["once"]

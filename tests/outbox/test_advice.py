"""What the outbox advises is done as it is said, and the messages come."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.cdc.postgres import run
from tests.outbox.taking import PostgresShop, Taking, until, values
from waterclock.cdc.door.words import in_python
from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.outbox import taker
from waterclock.outbox.taker import reworded
from waterclock.testing import Broker

CDC = Path(taker.__file__).parents[1] / "cdc"


@pytest.mark.postgres
def test_behind_a_slot_that_was_lost_it_goes_on_as_it_is_advised(postgres_shop: PostgresShop, broker: Broker) -> None:
    taking = Taking(postgres_shop, broker.bootstrap, "slotless")
    with taking.following():
        taking.write("a")
        until(lambda: len(taking.seen()) == 1 and not taking.rows())
    run(postgres_shop.conninfo, "select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    taking.write("b", "c")
    with taking.taker():
        until(lambda: bool(taking.lost))
    said = str(taking.lost[0])
    assert "The slot waterclock_slotless_outbox is gone" in said
    assert "delete the topic slotless.outbox, and start it again" in said
    admin = Admin(taking.settings)
    admin.client.delete_topics(["slotless.outbox"])["slotless.outbox"].result(20)
    taking.lost.clear()
    assert values(taking.take(3)) == ["a", "b", "c"]
    with taking.following():
        taking.write("d")
        until(lambda: len(taking.seen()) == 4 and not taking.rows())
    assert (values(taking.seen()), taking.lost) == (["a", "b", "c", "d"], [])


def test_each_advice_of_a_capture_to_start_anew_is_one_of_an_outbox() -> None:
    """The sentences as they stand in the code, without their line breaks."""
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(CDC.rglob("*.py")))
    sentences = re.sub(r'"\n\s+f?"', "", code)
    found = re.findall(r"[Bb]ring the target[^\"]*anew under another[^\"]*", sentences)
    assert len(found) >= 7
    for sentence in found:
        said = str(reworded(UsageError(in_python(sentence)), "delays.outbox", "shop.waterclock_outbox"))
        assert "elete the topic delays.outbox" in said
        assert "position" not in said


def test_a_row_that_was_put_aside_comes_once_it_is_inserted_anew(
    taking: Taking, caplog: pytest.LogCaptureFixture
) -> None:
    with taking.following(), taking.shop.connected() as connection, connection.cursor() as cursor:
        with caplog.at_level(logging.WARNING, "waterclock.relay"):
            taking.write("first", id="cart-17")
            until(lambda: len(taking.seen()) == 1 and not taking.rows())
            cursor.execute(
                "insert into waterclock_outbox (relay, message_value, headers) values ('nobody', 'mended', "
                '\'[["delay-to", "reminders"], ["delay-ms", "86400000"]]\')'
            )
            connection.commit()
            cursor.execute("update waterclock_outbox set relay = %s", (taking.topics.input,))
            connection.commit()
            until(lambda: "To have the message delivered: " in caplog.text)
        advice = caplog.text.partition("To have the message delivered: ")[2]
        statement, _, rest = advice.partition(";")
        assert rest.startswith(" then delete that row")
        assert values(taking.seen()) == ["first"]
        cursor.execute(statement)
        connection.commit()
        until(lambda: len(taking.seen()) == 2 and taking.rows() == 1)
        cursor.execute("delete from waterclock_outbox")
        connection.commit()
    assert values(taking.seen()) == ["first", "mended"]
    assert taking.lost == []

"""librdkafka's settings: out of a file, out of the environment, and who wins."""

from __future__ import annotations

import pytest

from waterclock.errors import UsageError
from waterclock.kafka.settings import (
    READING,
    SENDING,
    WHY_READING,
    base_settings,
    from_environment,
    from_text,
    refuse_own,
)  # fmt: skip

WHERE = "--kafka-config"


def test_a_file_holds_a_setting_a_line_and_comments() -> None:
    text = "\n# who we are\nsasl.username = ann\n\nsasl.password=a=b\n  client.id=  me  \n"
    assert from_text(WHERE, text) == {"sasl.username": "ann", "sasl.password": "a=b", "client.id": "me"}
    assert from_text(WHERE, "") == {}


def test_a_line_that_is_none_is_refused_and_a_secret_in_it_is_not_shown() -> None:
    with pytest.raises(UsageError, match=r"^--kafka-config: the line 'sasl.password' is no KEY=VALUE\.$"):
        from_text(WHERE, "sasl.password s3cret")


def test_values_come_from_the_environment_in_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret")
    given = {"sasl": {"password": {"env": "ORDERS_PASSWORD"}, "username": "ann"}, "client.id": "me"}
    assert from_environment("[x]", given) == {"sasl": {"password": "s3cret", "username": "ann"}, "client.id": "me"}


@pytest.mark.parametrize("variable", ["ORDERS_PASSWORD", "", 5, None])
def test_a_variable_that_is_not_set_is_refused_by_the_name_of_its_setting(
    variable: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "")
    with pytest.raises(UsageError, match=r"^\[x\]: 'sasl.password' is to come from the environment, and the variable"):
        from_environment("[x]", {"sasl": {"password": {"env": variable}}})


def test_a_user_wins_over_what_is_quiet_and_the_address_over_the_user() -> None:
    made = base_settings("h:1", {"log_level": "7", "bootstrap.servers": "h:2"})
    assert made == {"log_level": "7", "bootstrap.servers": "h:1"}


@pytest.mark.parametrize("name", READING)
def test_what_keeps_the_promise_of_a_reader_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^\[x\]: '{name}' cannot be set: {WHY_READING[name]}$"):
        refuse_own("[x]", ["client.id", name], WHY_READING)
    refuse_own("[x]", ["client.id"], WHY_READING)


def test_librdkafka_knows_every_setting() -> None:
    from confluent_kafka import Consumer, Producer

    Consumer({**base_settings("127.0.0.1:1", {}), "group.id": "g", **READING}).close()
    Producer({**base_settings("127.0.0.1:1", {}), **SENDING, "transactional.id": "t"})

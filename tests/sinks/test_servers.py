"""What the sinks of PostgreSQL and of MySQL promise both: URLs, passwords that nobody sees, types, one writer."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pymysql", reason="MySQL's sink is that of the extra mysql")

from tests.sinks.database_stores import kept
from tests.sinks.far_servers import FarServer
from tests.sinks.stores import SCHEMA, Store, batch, everything, of_batches
from waterclock.errors import UsageError
from waterclock.sinks import MySQLSink, PostgresSink, Sink, apply_once


@pytest.fixture
def store(far: FarServer) -> Store:
    return far.store


# Where it is, and who comes


@pytest.mark.parametrize(
    ("sink", "urls"),
    [
        (PostgresSink, ["", "shop", "mysql://u@h/d", "postgresql:shop", "postgresql://h\n/d", "http://[::1/x"]),
        (
            MySQLSink,
            ["shop", "mysql://h/d", "mysql://me@h", "postgres://me@h/d", "mysql://me@h/a/b", "mysql://me@h:x/d",
             "mysql://me@h/d?ssl=1", "mysql://me@h/d\n"],
        ),
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused(sink: Any, urls: list[str]) -> None:
    for url in urls:
        with pytest.raises(UsageError, match="the sink's url"):
            sink(url)


@pytest.mark.parametrize(
    ("sink", "url", "remedy"),
    [
        (PostgresSink, "postgresql://u:hush@h/d", "leave it out, and set PGPASSWORD"),
        (PostgresSink, "postgresql://h/d?user=u&password=hush", "leave it out, and set PGPASSWORD"),
        (PostgresSink, "mysql://u:hush@h/d", "must read like postgresql://user@host:5432/database"),
        (MySQLSink, "mysql://me:hush@h/d", "leave it out, and set MYSQL_PWD"),
        (MySQLSink, "mysql://me@h/d?password=hush", "leave it out, and set MYSQL_PWD"),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(sink: Any, url: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy) as caught:
        sink(url)
    assert "hush" not in str(caught.value)


def test_a_password_comes_from_the_environment_and_is_never_shown(
    far: FarServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(far.login("locked", "hush")) as sink:
        for wrong in ("", "wrong hush"):
            monkeypatch.setenv(far.password, wrong)
            where = rf"cannot connect to {far.scheme}://locked@.*{far.password}"
            with pytest.raises(UsageError, match=where) as caught:
                sink.open(SCHEMA)
            assert "hush" not in str(caught.value)
        monkeypatch.setenv(far.password, "hush")
        sink.open(SCHEMA)
        assert apply_once(sink, batch(0)) is True
        assert "hush" not in repr(vars(sink)) + sink.describe()


def test_what_a_server_has_no_type_for_is_refused_by_the_name_of_the_column(store: Store) -> None:
    with pytest.raises(UsageError, match="'event_v' is of the type duration"):
        kept(store, pa.duration("us"), [])
    assert store.tables() == []


# One writer


def test_of_two_drivers_on_one_table_the_second_waits_and_then_sees_what_is_applied(
    far: FarServer, store: Store, sink: Sink
) -> None:
    applied: list[bool] = []
    with closing(store.sink()) as second:
        second.open(SCHEMA)
        sink.begin()
        assert sink.is_applied("q", 1) is False
        waiting = threading.Thread(target=lambda: applied.append(apply_once(second, batch(1))))
        waiting.start()
        far.until_waiting()
        sink.write(batch(1))
        sink.commit()
        waiting.join(60)
    assert applied == [False]
    assert everything(store) == of_batches(0, 1)


def test_drivers_on_two_tables_do_not_wait_for_each_other(store: Store, sink: Sink) -> None:
    with closing(store.sink("others")) as other:
        sink.begin()
        other.open(SCHEMA)
        assert apply_once(other, batch(0)) is True
        sink.rollback()


def test_a_driver_that_waits_too_long_is_refused_and_the_other_one_named(
    far: FarServer, store: Store, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.impatient(monkeypatch)
    with closing(store.sink()) as second:
        sink.begin()
        held = rf"another transaction has held the tables in {far.scheme}://.*is a second pipeline writing there\? Stop one"
        with pytest.raises(UsageError, match=held):
            apply_once(second, batch(1))
        sink.rollback()
        assert apply_once(second, batch(1)) is True

"""Rows in part (binlog_row_image MINIMAL and NOBLOB), for targets that hold the rest; what nobody holds is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.test_asked_again import put
from tests.kafka.reader import committed
from tests.sinks.stores import SQLiteStore
from waterclock import cli
from waterclock.cdc import changes
from waterclock.errors import UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb

MADE = (
    "create table item (id int primary key, n int, b longblob, d varchar(9) default 'x', twice int as (2 * n) virtual)"
)


@pytest.fixture
def started(mariadb: MariaServer, database: str, here: str, broker: Broker) -> list[str]:
    where = [f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    return ["cdc", *where, "--once", "--order", "global", "--from", here, "--partial-rows"]


def sent(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in committed(broker, topic)[0]]


@pytest.mark.parametrize("image", ["minimal", "noblob"])
def test_a_target_that_holds_the_row_has_it_as_it_is(
    image: str, started: list[str], mariadb: MariaServer, database: str, broker: Broker, tmp_path: Path
) -> None:
    mariadb.run(
        MADE,
        f"set binlog_row_image = {image}",
        "insert into item (id, n, b, d) values (1, 1, 'blob', 'a'), (2, 2, 'blob', 'b'), (3, 3, null, 'c')",
        "update item set n = n + 10",
        "update item set b = 'other' where id = 2",
        "update item set b = null, d = null where id = 1",
        "delete from item where id = 3",
        "replace into item (id, n, b, d) values (1, 7, 'r', 'r')",
        "update item set n = 8 where id = 1",
        database=database,
    )
    assert cli.main(started) == 0
    found = sent(broker, database)
    changed = next(each for each in found if each["data"]["id"] == 2 and each["data"].get("n") == 12)
    assert "b" not in changed["data"]
    target = SQLiteStore(tmp_path)
    put(target, found)
    rows = target.look("id, n, b, d", target.mirrored(f"{database}.item"))
    as_base64 = "id, n, replace(to_base64(b), '\n', ''), d"
    assert sorted(rows) == sorted(mariadb.run(f"select {as_base64} from {database}.item"))


@pytest.mark.parametrize(
    ("image", "statement", "why"),
    [
        (
            "minimal",
            "insert into item (id, n, b) values (2, 2, 'b')",
            "Rows of {}.item lack d: binlog_row_image is not",
        ),
        ("minimal", "update item set id = 9", "{}.item: The row got another key, and binlog_row_image is not FULL"),
        ("noblob", "update item set id = 9", "{}.item: The row got another key, and binlog_row_image is not FULL"),
    ],
)
def test_what_no_reader_holds_is_refused(
    image: str,
    statement: str,
    why: str,
    started: list[str],
    mariadb: MariaServer,
    database: str,
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mariadb.run(MADE, "insert into item (id, n, b) values (1, 1, 'b')", database=database)
    mariadb.run(f"set binlog_row_image = {image}", statement, database=database)
    assert cli.main(started) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert why.format(database) in told
    assert "--partial-rows" not in told
    assert [each["type"] for each in sent(broker, database)] == ["insert"]


def test_a_key_that_changes_with_all_that_the_row_has_comes(
    started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    mariadb.run(MADE, "insert into item (id, n, b) values (1, 1, 'b')", database=database)
    mariadb.run("set binlog_row_image = minimal", "update item set id = 9, n = 2, b = 'c', d = 'e'", database=database)
    assert cli.main(started) == 0
    _, gone, came = sent(broker, database)
    assert (gone["type"], gone["data"]) == ("delete", {"id": 1})
    assert (came["type"], came["data"] | {"twice": 4}) == (
        "insert",
        {"id": 9, "n": 2, "b": "Yw==", "d": "e", "twice": 4},
    )


def test_debeziums_form_says_which_values_are_not_there(
    started: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    mariadb.run(MADE, "insert into item (id, n, b) values (1, 1, 'b')", database=database)
    mariadb.run("set binlog_row_image = minimal", "update item set n = 2", database=database)
    assert cli.main([*started, "--form", "debezium"]) == 0
    after = sent(broker, f"{database}.{database}.item")[-1]["after"]
    assert (after["id"], after["n"], after["d"]) == (1, 2, "__debezium_unavailable_value")


def test_a_program_in_python_gets_what_there_is(
    started: list[str], mariadb: MariaServer, database: str, tmp_path: Path
) -> None:
    def read(partial_rows: bool) -> list[tuple[Any, ...]]:
        found = []
        with changes(started[1], position=tmp_path / "place", once=True, partial_rows=partial_rows) as stream:
            for batch in stream:
                found += [(one.type, one.data, one.old) for one in batch]
                batch.commit()
        return found

    mariadb.run(MADE, "insert into item (id, n, b) values (1, 1, 'b')", database=database)
    assert len(read(False)) >= 1
    mariadb.run("set binlog_row_image = minimal", "update item set n = 2", database=database)
    with pytest.raises(UsageError, match="Or take such updates and deletes: partial_rows=True"):
        read(False)
    assert read(True) == [("update", {"id": 1, "n": 2}, {})]


def test_without_the_option_the_way_on_is_named_and_works(
    started: list[str], mariadb: MariaServer, database: str, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.run(MADE, "insert into item (id, n, b) values (1, 1, 'b')", database=database)
    mariadb.run("set binlog_row_image = minimal", "update item set n = 2", database=database)
    strict = started[:-1]
    assert cli.main(strict) == 2
    assert "Or take such updates and deletes: --partial-rows." in " ".join(capsys.readouterr().err.split())
    mariadb.run("set global binlog_row_image = 'MINIMAL'")
    try:
        assert cli.main(strict) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert "binlog_row_image is MINIMAL and must be FULL" in told
        assert "Or take rows in part: --partial-rows." in told
        assert cli.main(started) == 0
    finally:
        mariadb.run("set global binlog_row_image = 'FULL'")
    last = sent(broker, database)[-1]
    assert (last["type"], last["data"], "old" in last) == ("update", {"id": 1, "n": 2}, False)

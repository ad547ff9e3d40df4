"""A table that gets another one's name: the target has its rows, no more and no fewer, and was never empty."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc import changes
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.testing import Broker

SWAPS = [
    ["rename table t to _t_del, _t_gho to t"],
    ["rename table if exists t wait 5 to `_t_del`", "alter table _t_gho add n int default 3, rename to t"],
    ["drop table t", "alter table _t_gho rename t"],
    ["rename table t to aside, _t_gho to t, aside to _t_gho"],
]
Rows = dict[str, dict[int, Any]]


@pytest.fixture
def maria(mariadb: MariaServer, database: str, broker: Broker) -> list[str]:
    """A table, and one beside it that is to take its place: it lacks the rows 1 and 2, and has one more."""
    mariadb.run(
        *[f"create table {name} (id int primary key, v int)" for name in ("t", "_t_gho", "old")],
        "insert into t select seq, 1 from seq_1_to_5",
        "insert into _t_gho select seq, 2 from seq_3_to_6",
        "insert into old values (1, 1)",
        database=database,
    )
    where = [f"mysql://root@127.0.0.1:{mariadb.port}/{database}", "--to", f"kafka://{broker.bootstrap}/{database}"]
    return ["cdc", *where, "--once", "--order", "global"]


def folded(broker: Broker, topic: str, may_empty: bool = False) -> Rows:
    """What a target has that goes by the positions alone; a swap never empties it."""
    held: dict[str, dict[int, tuple[int, Any]]] = {}
    for _, value in committed(broker, topic)[0]:
        each = json.loads(value)
        assert may_empty or each["type"] != "truncate"
        rows, data = held.setdefault(each["table"], {}), each["data"]
        if each["type"] == "truncate":
            rows.clear()
            continue
        if each["type"] == "bootstrap-complete":
            rows = {key: row for key, row in rows.items() if row[0] > data["since"]}
            held[each["table"]] = rows
        elif each["type"] == "delete":
            rows.pop(data["id"], None)
        else:
            rows[data["id"]] = (each["sequence"], data)
    return {table: {key: row for key, (_, row) in rows.items()} for table, rows in held.items()}


def shown(mariadb: MariaServer, database: str, table: str) -> dict[int, Any]:
    columns = [name for (name,) in mariadb.run(
        "select column_name from information_schema.columns where table_schema = %s and table_name = %s "
        "order by ordinal_position".replace("%s", "'{}'").format(database, table)
    )]  # fmt: skip
    rows = mariadb.run(f"select {', '.join(columns)} from {database}.{table}")
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


@pytest.mark.mariadb
@pytest.mark.parametrize("swap", SWAPS, ids=["gh-ost", "by alter", "dropped before", "exchanged"])
@pytest.mark.parametrize("only", [True, False], ids=["the table alone", "all tables"])
def test_a_table_that_takes_the_place_of_another_leaves_the_target_with_its_rows(
    only: bool, swap: list[str], maria: list[str], mariadb: MariaServer, database: str, broker: Broker
) -> None:
    """The target kept rows that are gone, and had none of a column that only the new table has."""
    maria += ["--tables", f"{database}.t"] if only else []
    assert cli.main(maria) == 0
    mariadb.run("update t set v = 7 where id = 4", *swap, "insert into t (id, v) values (9, 9)", database=database)
    mariadb.run("delete from t where id = 6", "update t set v = 8 where id = 5", database=database)
    assert cli.main(maria) == 0
    found = folded(broker, database)
    assert found["t"] == shown(mariadb, database, "t")
    if swap == SWAPS[-1] and not only:
        assert found["_t_gho"] == shown(mariadb, database, "_t_gho")
    assert cli.main(maria) == 0
    assert folded(broker, database) == found  # and it comes once


@pytest.mark.mariadb
def test_a_table_with_a_new_name_comes_whole_under_it_and_stays_under_the_old_one(
    maria: list[str], mariadb: MariaServer, database: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli.main(maria) == 0
    mariadb.run("rename table t to u", "update u set v = 3 where id = 1", database=database)
    assert cli.main(maria) == 0
    found = folded(broker, database)
    assert found["u"] == shown(mariadb, database, "u")
    assert found["t"].keys() == {1, 2, 3, 4, 5}
    assert f"Renamed: {database}.u. All of it comes again, and rows that are gone go." in caplog.text


@pytest.mark.mariadb
def test_without_a_snapshot_what_does_not_come_is_told(
    maria: list[str], mariadb: MariaServer, database: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    maria += ["--from-here", "--tables", f"{database}.[tuo]*"]
    mariadb.run("create table u (id int primary key)", "drop table u", "rename table t to u", database=database)
    assert cli.main(maria) == 0
    assert f"{database}.t was renamed to {database}.u (transaction 0-1-" in caplog.text
    assert "under the new name; its changes come." in caplog.text
    mariadb.run("rename table u to w", database=database)
    assert cli.main(maria) == 0
    assert "The new name is not asked for: its changes do not come any more." in caplog.text


@pytest.mark.mariadb
def test_a_program_in_python_gets_the_rows_too(
    maria: list[str], mariadb: MariaServer, database: str, tmp_path: Any
) -> None:
    def read() -> list[tuple[str, Any]]:
        with changes(maria[1], tables=[f"{database}.t"], position=tmp_path / "place", once=True) as stream:
            found = []
            for batch in stream:
                found += [(change.type, change.data.get("id") or change.data) for change in batch]
                batch.commit()
            return found

    assert {number for _, number in read()} == {1, 2, 3, 4, 5}
    mariadb.run(*SWAPS[0], "insert into t values (9, 9)", database=database)
    *rows, (last, data) = read()
    assert sorted(set(rows)) == [*[("bootstrap-insert", n) for n in (3, 4, 5, 6, 9)], ("insert", 9)]
    assert (last, list(data)) == ("bootstrap-complete", ["since"])


@pytest.mark.postgres
def test_a_table_of_postgresql_that_is_met_under_another_name_comes_whole(
    command: list[str], slot: ReplicationSlot, broker: Broker
) -> None:
    """Under the new name a target had the rows only that changed later."""
    made = [f"create table {name} (id int primary key, v int)" for name in ("t", "shadow")]
    run(slot.conninfo, *made, "insert into t select n, 1 from generate_series(1, 5) n")
    assert cli.main(command) == 0
    run(slot.conninfo, "update t set v = 2 where id = 1", "insert into shadow select n, 3 from generate_series(3, 6) n")
    run(slot.conninfo, "begin; alter table t rename to gone; alter table shadow rename to t; commit")
    run(slot.conninfo, "update t set v = 4 where id = 3")
    assert cli.main(command) == 0
    found = folded(broker, slot.name)
    assert found["t"] == {id: {"id": id, "v": v} for id, v in run(slot.conninfo, "select id, v from t")}
    assert "gone" not in found  # nothing of it has changed since
    run(slot.conninfo, "update gone set v = 5 where id = 2")
    assert cli.main(command) == 0
    assert found | {"gone": folded(broker, slot.name)["gone"]} == folded(broker, slot.name)

"""A Debezium connector is moved by one command: its topic, begun by it and gone on with by us, has each row once."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cdc.connect.worker import connect, of_mariadb, until
from tests.cdc.mariadb import MariaServer
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.testing import Broker

pytestmark = [pytest.mark.servers, pytest.mark.long(seconds=120)]


def sent(broker: Broker, topic: str) -> list[tuple[bytes, bytes]]:
    try:
        return [message for part in committed(broker, topic).values() for message in part]
    except (KeyError, AssertionError):
        return []


def moved(settings: Mapping[str, str], offsets: Path, broker: Broker, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The position is stored; the words of the command that goes on."""
    file = offsets.with_name("connector.properties")
    arguments = [
        "move",
        "debezium",
        str(file),
        "--offset",
        str(offsets),
        "--to",
        f"kafka://{broker.bootstrap}",
        "--write",
    ]
    capsys.readouterr()
    assert cli.main(arguments) == 0
    said = capsys.readouterr()
    named = {line.split()[1] for line in said.err.splitlines() if "has no counterpart" in line}
    assert {"max.batch.size", "snapshot.mode"} <= named
    print(said.out)
    return shlex.split(said.out.splitlines()[-1])[1:]


def check_each_row_once(found: list[tuple[bytes, bytes]], rows: Mapping[int, int], changes: int) -> None:
    """The fold of the topic is the table, and no change stands in it twice."""
    state: dict[int, int] = {}
    values = [json.loads(value) for _, value in found]
    values = [value.get("payload", value) for value in values]
    for value in values:
        state[value["after"]["id"]] = value["after"]["n"]
    assert state == rows
    assert len(values) == changes
    assert len({(value["op"], value["after"]["id"], value["after"]["n"]) for value in values}) == changes
    assert {value["source"]["version"] == "waterclock" for value in values} == {True, False}


@pytest.mark.mariadb
def test_a_connector_of_mariadb_is_moved_in_the_middle_of_a_transaction(
    mariadb: MariaServer, database: str, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, step = 100_000, 7_000
    mariadb.run(f"create table {database}.item (id int primary key, n int)", f"create table {database}.other (id int)")
    settings = of_mariadb(mariadb, tmp_path, broker.bootstrap, database)
    topic = f"{database}.{database}.item"
    with connect(tmp_path, broker.bootstrap, settings) as offsets:
        marks = 0
        while not sent(broker, topic):  # until it reads
            marks += 1
            mariadb.run(f"insert into {database}.item values (-{marks}, 0)")
            time.sleep(1)
            assert marks < 100
        for first in range(1, count + 1, step):
            last = min(first + step - 1, count)
            mariadb.run(f"insert into {database}.other values (1)")
            mariadb.run(f"insert into {database}.item select seq, 0 from {database}.seq_{first}_to_{last}")
        until(lambda: len(sent(broker, topic)) > 30_000)
    half = len(sent(broker, topic))
    print("Debezium wrote", half)
    mariadb.run(f"update {database}.item set n = 1 where id > 0 and id % 10 = 0")
    words = moved(settings, offsets, broker, capsys)
    assert cli.main([*words, "--once"]) == 0
    rows = {int(key): int(n) for key, n in mariadb.run(f"select id, n from {database}.item")}
    check_each_row_once(sent(broker, topic), rows, len(rows) + count // 10)
    assert half < count

"""The commands with which docs/cdc.md opens, on real servers: as they stand, but for ports and the database's name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.kafka.reader import committed
from tests.postgres_server import running_server
from tests.samples import free_port
from waterclock.testing import Broker

OPENING = (Path(__file__).parents[2] / "docs" / "cdc.md").read_text().partition("\n## ")[0].replace("\\\n  ", "")
OF_MARIA, OF_POSTGRES = (block.strip().splitlines()[1:] for block in re.findall(r"```\n(.*?)```", OPENING, re.S))
ROWS = ("create table orders (id int primary key)", "insert into orders values (1), (2)")


def captured(command: str, port: int, broker: Broker, name: str) -> list[int]:
    """The ids of what the capture writes."""
    there = command.replace("127.0.0.1:9092/shop", f"{broker.bootstrap}/{name}")
    there = re.sub(r"@127\.0\.0\.1:\d+/shop", f"@127.0.0.1:{port}/{name}", there)
    there = there.replace("waterclock", f"{sys.executable} -m waterclock.cli", 1)
    subprocess.run(f"{there} --once", shell=True, check=True, timeout=120)
    found = [json.loads(value) for records in committed(broker, name).values() for _, value in records]
    return sorted(one["data"]["id"] for one in found if one["data"])


@pytest.mark.mariadb
def test_those_of_mariadb(mariadb: MariaServer, broker: Broker, database: str) -> None:
    allows, captures = OF_MARIA
    mariadb.run(f"use {database}", *ROWS)
    mariadb.run("reset master")  # the rows are older than the log
    statements = re.fullmatch(r'mariadb -e "(.*)"', allows)
    assert statements is not None
    mariadb.run("drop user if exists reader", *statements[1].split("; "))
    assert captured(captures, mariadb.port, broker, database) == [1, 2]


@pytest.mark.postgres
def test_those_of_postgresql(broker: Broker) -> None:
    allows, captures = OF_POSTGRES
    port = free_port()
    told = {"wal_level": "logical", "listen_addresses": "127.0.0.1", "port": str(port)}
    with running_server(told):
        where = f"postgresql://postgres@127.0.0.1:{port}"
        run(f"{where}/postgres", "create role shop login password 'secret'", "create database orders1 owner shop")
        run(f"{where.replace('postgres@', 'shop@')}/orders1", *ROWS)
        statement = re.fullmatch(r'psql shop -c "(.*)"', allows)
        assert statement is not None
        run(f"{where}/orders1", statement[1])
        assert captured(captures, port, broker, "orders1") == [1, 2]

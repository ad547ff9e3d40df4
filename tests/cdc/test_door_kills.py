"""A program that reads changes is killed at each step: every change is once in its own tables, in SQLite or PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from tests.cdc.door_steps import COPY, connected
from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import run
from tests.postgres_server import PostgresServer
from waterclock.cdc.postgres.session import ReplicationSlot

pytestmark = [pytest.mark.mariadb, pytest.mark.postgres]
QUICK = {("mariadb", "postgres"), ("postgres", "sqlite")}


def source_of(kind: str, request: pytest.FixtureRequest) -> tuple[Callable[..., object], str, dict[str, object]]:
    """What runs statements in it, its address, and what the stream is to be told."""
    if kind == "mariadb":
        source: MariaSource = request.getfixturevalue("source")
        address = f"mysql://root:@127.0.0.1:{source.server.port}/{source.name}"
        return source.run, address, {"tables": [f"{source.name}.t"], "from_here": True}
    slot: ReplicationSlot = request.getfixturevalue("slot")
    named = {"slot": slot.name, "publication": slot.publication, "tables": ["public.t"]}
    return lambda *statements: run(slot.conninfo, *statements), slot.conninfo, named


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        pytest.param(*each, marks=() if each in QUICK else pytest.mark.long(seconds=40))
        for each in product(("mariadb", "postgres"), ("sqlite", "postgres"))
    ],
)
def test_a_program_that_is_killed_at_each_step_has_every_change_once(
    kind: str, target: str, request: pytest.FixtureRequest, tmp_path: Path, logical: PostgresServer
) -> None:
    sql, url, options = source_of(kind, request)
    own = str(tmp_path / "own.sqlite")
    if target == "postgres":
        run(logical.url(), "drop database if exists own with (force)", "create database own")
        own = logical.url(database="own")

    def start(step: str, number: int) -> int:
        command = [sys.executable, "-m", "tests.cdc.door_steps", url, json.dumps(options), own, step, str(number)]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
        assert done.returncode in (0, -9), done.stderr[-2000:]
        return done.returncode

    sql("create table t (id int primary key, c text)")
    assert start("none", 0) == 0
    expected, killed = [], 0
    for turn, (step, number) in enumerate(product(("write", "position", "commit", "stored"), (1, 2, 4))):
        first = turn * 100
        sql(*[f"insert into t values ({first + n}, 'a')" for n in range(4)])
        many = ",".join(f"({first + 10 + n}, 'b')" for n in range(12))  # in three parts
        sql(f"insert into t values {many}", f"update t set c = 'x' where id = {first}")
        expected += [(first + n, "a", "insert") for n in range(4)]
        expected += [(first + 10 + n, "b", "insert") for n in range(12)] + [(first, "x", "update")]
        killed += start(step, number) == -9
    assert start("none", 0) == 0
    assert killed >= 10  # a late step may be one that the last start did not come to
    with closing(connected(own)) as connection:
        connection.execute(COPY)
        assert connection.execute("select id, c, kind from copy").fetchall() == expected

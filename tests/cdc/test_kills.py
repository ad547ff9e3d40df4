"""A capture that is killed before or after each of its steps: one topic or one for each table, dead letters beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.cdc.kill_steps import target_of
from tests.cdc.mariadb import MariaServer
from tests.cdc.topics import capture_of, messages, shop
from tests.kafka.reader import committed
from waterclock.cdc.produce import ONE, PER_TABLE
from waterclock.cdc.source import DeadLetter, put_aside
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb
QUICK = {("store", "after", ONE), ("finish", "before", PER_TABLE)}
STEPS = ("fence", "begin", "send", "store", "finish")
TABLES = ("item", "sale", "note")


def expected(mariadb: MariaServer, start: str, database: str) -> tuple[list[MaxwellMessage], list[DeadLetter]]:
    reader, end = mariadb.reader(start, f"{database}.*", refusal=put_aside), mariadb.place()
    rows, letters = [], []
    for item in reader.items():
        rows += [item] if isinstance(item, MaxwellMessage) else []
        letters += [item] if isinstance(item, DeadLetter) else []
        if reader.reached(end):
            break
    reader.close()
    return rows, letters


@pytest.mark.parametrize(
    ("step", "when", "topics"),
    [
        pytest.param(*each, marks=() if each in QUICK else pytest.mark.long(seconds=4))
        for each in product(STEPS, ("before", "after"), (ONE, PER_TABLE))
    ],
)
def test_a_kill_at_each_step_loses_nothing_and_doubles_nothing(
    step: str, when: str, topics: str, mariadb: MariaServer, broker: Broker, database: str, here: str
) -> None:
    odd, target = topics == PER_TABLE, target_of(broker.bootstrap, database, topics)
    for number in (1,) if step == "fence" else (1, 1, 2):
        shop(mariadb, database, 3, odd)
        arguments = [str(mariadb.port), broker.bootstrap, database, database, here, step, when, str(number), topics]
        command = [sys.executable, "-m", "tests.cdc.kill_steps", *arguments]
        if number == 2 and step != "send":  # a second transaction of Kafka's: there has to be something for it
            started = subprocess.Popen(command, cwd=Path(__file__).parents[2])
            shop(mariadb, database, 2, odd)
            while started.poll() is None:
                shop(mariadb, database, 1, odd)
            assert started.returncode == -9
        else:
            died = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, timeout=60)
            assert died.returncode == -9
    capture_of(mariadb, target, here, f"{database}.*", refusal=put_aside).run(mariadb.place())
    rows, letters = expected(mariadb, here, database)
    for table in TABLES if odd else [""]:
        topic = f"{database}.{database}.{table}" if odd else database
        found = [message for part in committed(broker, topic).values() for message in part]
        assert sorted(found) == sorted(messages(row for row in rows if row.table == table or not odd))
    aside = [json.loads(value) for part in committed(broker, target.dead_letters).values() for _, value in part]
    assert [(each["gtid"], each["xoffset"]) for each in aside] == [(each.gtid, each.xoffset) for each in letters]
    assert len(letters) >= 3 * odd

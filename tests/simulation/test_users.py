"""A user's own aiokafka code in a universe: the seed decides, the flag repeats, the rest of Python is as before.

Rule 1: a universe has a Python process of its own here: beside the suite's real brokers there can be none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiokafka")
pytest.importorskip("greenlet")
pytest.importorskip("kio")

ROOT = Path(__file__).parents[2]


def python(*words: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def suite(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    plugins = ["-p", "no:cacheprovider", "-p", "waterclock.pytest_plugin", "-p", "no:asyncio", "-p", "no:anyio"]
    return python("-W", "error", "-m", "pytest", "-q", *plugins, *options, folder=folder)


def test_a_seed_has_one_history_in_each_process_alone_and_behind_others() -> None:
    """Orders, bills by transactions, a group of two; all faults. Each bill was held against its order."""
    runs = [("11", "12", "13"), ("13", "11"), ("12", "13")]
    done = [python("-m", "tests.simulation.users", *seeds, PYTHONHASHSEED=str(n)) for n, seeds in enumerate(runs)]
    assert [one.stderr for one in done] == ["", "", ""]
    histories = {line for one in done for line in one.stdout.splitlines()}
    assert len(histories) == 3, histories


BOOKER = """
import pytest
from aiokafka import AIOKafkaConsumer

async def commit_first(bootstrap, table):
    options = dict(bootstrap_servers=bootstrap, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest")
    async with AIOKafkaConsumer("orders", **options) as consumer:
        async for order in consumer:
            await consumer.commit()
            await table.write({order.value: 1})

@pytest.mark.kafka_universe(seeds=range(5), faults=["kill"])
def test_all_are_booked(kafka_universe):
    table = kafka_universe.table()
    kafka_universe.topic("orders")
    kafka_universe.send("orders", [b"%d" % n for n in range(100)])
    kafka_universe.process("booker", commit_first, kafka_universe.bootstrap, table)
    kafka_universe.run(10)
    kafka_universe.settle(lambda: len(table) == 100)
"""


def test_a_seed_that_failed_is_named_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    told = suite(tmp_path, BOOKER).stdout
    assert "Exception" not in told, told
    again = re.findall(
        r"to repeat it: pytest '(test_it.py::test_all_are_booked\[seed(\d+)\])' --waterclock-seed=(\d+)", told
    )
    assert again, told
    assert "booker was killed at test_it.py:8" in told or "booker was killed at test_it.py:9" in told
    node, _, seed = again[0]
    once, twice = (suite(tmp_path, BOOKER, node, f"--waterclock-seed={seed}").stdout for _ in range(2))
    story = re.compile(r"universe of seed.*?to repeat", re.S)
    assert story.findall(once) == story.findall(twice) == story.findall(told)[:1]


def test_the_flag_runs_one_seed_alone_whatever_the_mark_says(tmp_path: Path) -> None:
    done = suite(
        tmp_path, "def test_one(kafka_universe):\n    assert kafka_universe.seed == 777\n", "--waterclock-seed=777"
    )
    assert "1 passed" in done.stdout, done.stdout


WORLD = """
import asyncio, random, time, uuid
import pytest
from waterclock.errors import UsageError
from waterclock.testing import universe

async def looks(seen):
    before = time.monotonic()
    await asyncio.sleep(3600)
    time.sleep(60)
    seen.append((round(time.monotonic() - before), time.time(), random.random(), uuid.uuid4()))

def test_a_real_broker_is_no_obstacle(kafka_broker):
    assert kafka_broker.statistics().topics == 0

def test_time_and_chance_are_the_seeds_and_python_has_its_own_again():
    seen, before = [], (time.time(), random.getstate())
    for _ in range(2):
        with universe(5, ()) as world:
            world.process("looks", looks, seen)
            world.run(4000)
    assert seen[0] == seen[1] and seen[0][0] == 3660
    assert 0 <= time.time() - before[0] < 60 and random.getstate() == before[1]

async def fails():
    await asyncio.sleep(1)
    raise ZeroDivisionError("mine")

def test_an_error_of_the_users_is_the_tests():
    with pytest.raises(ZeroDivisionError, match="mine") as told, universe(5) as world:
        world.process("fails", fails)
        world.run(60)
    assert "fails ended: ZeroDivisionError" in told.value.__notes__[0]

async def connects(seen):
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("example.org", 80)
    seen.append(True)

def test_nobody_but_the_broker_is_there():
    seen = []
    with universe(5, ()) as world:
        world.process("connects", connects, seen)
        world.settle(lambda: seen)

def test_what_is_wrong_is_said_at_once():
    with pytest.raises(UsageError, match="did you mean 'kill'"), universe(1, ["kil"]):
        pass
    with universe(5, ()) as world, pytest.raises(ValueError, match="refused"):
        world.topic("no topic!")

@pytest.mark.kafka_universe(seeds=[1])
def test_this_comes_first(kafka_universe):
    assert kafka_universe.records
"""


def test_a_universe_takes_pythons_time_and_chance_and_gives_them_back(tmp_path: Path) -> None:
    done = suite(tmp_path, WORLD, "-k", "not real_broker")
    assert "5 passed" in done.stdout, done.stdout
    done = suite(tmp_path, WORLD, "-k", "real_broker or first")
    assert "2 passed" in done.stdout, done.stdout


def test_without_the_extra_its_packages_are_named(tmp_path: Path) -> None:
    tests = "import sys\nsys.modules['aiokafka'] = None\ndef test_one(kafka_universe): pass\n"
    told = suite(tmp_path, tests, "--waterclock-seed=1").stdout
    assert "aiokafka is missing, and a universe needs it: pip install" in told


def test_the_examples_booker_is_right_in_each_universe_and_the_wrong_one_is_found() -> None:
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/bookings", "-k", "seed1 or shows")
    assert "12 passed" in done.stdout, done.stdout

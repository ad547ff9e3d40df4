"""Killed at every numbered step, in replays, at random and live: run again, what is written is that of a run in peace."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import store_of
from tests.local.crash_driver import STEPS
from tests.local.places import Table, found, into
from tests.local.running import driven, kinds, run_locally
from tests.sinks.stores import Store, TopicStore
from tests.spark.pipelines import make_pipeline, orders
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.testing import Broker

FILES = 12
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
Make = Callable[[str, Path, Store], Path]


def plain(file: Path) -> Path:
    """Its rules without what hides an event that comes twice, or late."""
    text = file.read_text().replace('[rules.deduplicate]\nwithin = "1 day"\n', "")
    text = text.replace('[rules.order]\nwait = "1 hour"\n', "").replace('sequence = "n"\n', "")
    file.write_text(text.replace('watermark_delay = "1 hour"', 'watermark_delay = "20 minutes"'))
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline from files: some lines are damaged, some events late, and what comes twice counts twice."""
    file = plain(make_pipeline(tmp_path_factory.mktemp("files"), orders(120), FILES))
    for path in sorted((file.parent / "in").iterdir())[::3]:
        moment = path.stat().st_mtime_ns
        path.write_text(path.read_text() + '{"order": \n')
        os.utime(path, ns=(moment, moment))
    file.write_text(file.read_text().replace('path = "in"', f'path = "{file.parent / "in"}"'))
    return file


@pytest.fixture(scope="module")
def topic(kafka_broker: Broker) -> str:
    """The same in three partitions."""
    kafka_broker.create_topic("orders", 3)
    sender = Sender(kafka_broker.bootstrap, "orders")
    sender.orders(orders(120))
    sender.put('{"order": ', partition=1)
    return "orders"


@pytest.fixture(scope="module")
def make(kafka_broker: Broker, topic: str, files: Path) -> Make:
    """The pipeline from files or from the topic, in a folder of its own, into a store."""

    def made(source: str, folder: Path, store: Store) -> Path:
        folder.mkdir(exist_ok=True)
        if source == "topic":
            return into(plain(make_topic_pipeline(folder, kafka_broker.bootstrap, topic, more="per_batch = 30")), store)
        file = folder / "pipeline.toml"
        file.write_text(files.read_text())
        return into(file, store)

    return made


def new_store(request: pytest.FixtureRequest, folder: Path) -> Store:
    if request.param == "topic":
        return TopicStore(request.getfixturevalue("kafka_broker").bootstrap)
    return store_of(request, folder)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return new_store(request, tmp_path)


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, str], list[Table]]:
    """By source and kind of sink: what a run leaves that nothing happens to."""
    return {}


@pytest.fixture
def peace(
    request: pytest.FixtureRequest, make: Make, store: Store, known: dict[tuple[str, str], list[Table]], tmp_path: Path
) -> Callable[[str], list[Table]]:

    def of(source: str) -> list[Table]:
        kind = type(store).__name__
        if (source, kind) not in known:
            request.param = request.node.callspec.params["store"]
            other = new_store(request, tmp_path / "peace")
            run_locally(make(source, tmp_path / "peace", other))
            known[source, kind] = found(other)
            assert len(known[source, kind][0]) > 300
            assert len(known[source, kind][1]) == (4 if source == "files" else 1)
        return known[source, kind]

    return of


STEP = pytest.mark.parametrize("step", STEPS[:-1])


@STEP
@pytest.mark.parametrize(
    ("source", "store", "counts"),
    [
        ("files", "sqlite", (1, 2, 5)),
        ("files", "topic", (2, 4)),
        pytest.param("topic", "postgres", (2, 4), marks=[pytest.mark.postgres, pytest.mark.long(seconds=7)]),
    ],
    indirect=["store"],
)
def test_killed_at_a_step_it_ends_as_in_peace(
    make: Make, peace: Callable[[str], list[Table]], store: Store, tmp_path: Path, step: str, source: str,
    counts: tuple[int, ...],
) -> None:  # fmt: skip
    file = make(source, tmp_path / "killed", store)
    for count in counts:
        assert driven(file, step, count) is None
    assert driven(file) is not None
    assert found(store) == peace(source)


@pytest.mark.parametrize(("source", "store"), [("files", "sqlite"), ("files", "topic")], indirect=["store"])
def test_killed_in_a_replay_and_in_the_one_after_it_it_ends_as_in_peace(
    make: Make, peace: Callable[[str], list[Table]], store: Store, tmp_path: Path, source: str
) -> None:
    file = make(source, tmp_path / "killed", store)
    assert driven(file, "committed", 7) is None
    assert driven(file, "replayed", 2) is None
    assert driven(file, "replayed", 1) is None
    assert (driven(file) or 0) > 0
    assert found(store) == peace(source)


@pytest.mark.parametrize(
    ("source", "store"),
    [
        ("files", "sqlite"),
        pytest.param("topic", "topic", marks=pytest.mark.long(seconds=12)),
        pytest.param("topic", "postgres", marks=[pytest.mark.postgres, pytest.mark.long(seconds=8)]),
    ],
    indirect=["store"],
)
def test_killed_at_random_it_ends_as_in_peace(
    make: Make, peace: Callable[[str], list[Table]], store: Store, tmp_path: Path, source: str, campaign_seed: int
) -> None:
    file, chance = make(source, tmp_path / "killed", store), random.Random(campaign_seed)
    for _ in range(6):
        driven(file, "random", chance.randrange(1, 120))
    assert driven(file) is not None
    assert found(store) == peace(source)


# Live ------------------------------------------------------------------------------------------------------------


def last_of(store: Store) -> int:
    """The last batch that is there; -1 if none is."""
    while True:
        with suppress(sqlite3.OperationalError):  # locked for a moment
            if "results_batches" not in store.tables():
                return -1
            return max((row[0] for row in store.look("batch_id, query_id", "results_batches")), default=-1)


def kill_once(file: Path, store: Store, chance: random.Random) -> None:
    """Run the command, live, and kill it when it has written some batches."""
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--engine", "local", "--live", "--json"]
    said = file.with_name("said.txt")
    with said.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            before, until = last_of(store), time.monotonic() + 30
            while last_of(store) < before + 3 and time.monotonic() < until and process.poll() is None:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 0.5))
            assert process.poll() is None, said.read_text()[-2000:]
        finally:
            process.kill()
            process.wait()


@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("store", ["sqlite", "topic", POSTGRES], indirect=True)
def test_killed_live_each_row_is_there_once(
    kafka_broker: Broker, kafka_topic: str, store: Store, tmp_path: Path, request: pytest.FixtureRequest,
    campaign_seed: int,
) -> None:  # fmt: skip
    name, chance = f"{kafka_topic}-live", random.Random(campaign_seed)
    kafka_broker.create_topic(name, 3)
    file = into(make_topic_pipeline(tmp_path / "live", kafka_broker.bootstrap, name), store)
    sender, ended = Sender(kafka_broker.bootstrap, name), threading.Event()

    def send() -> None:
        for row in orders(2000):
            sender.orders([row])
            if ended.wait(0.005):
                return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for _ in range(5):
            kill_once(file, store, chance)
    finally:
        ended.set()
        thread.join()
    run_locally(file)
    request.param = request.node.callspec.params["store"]
    other = new_store(request, tmp_path / "peace")
    peace = into(make_topic_pipeline(tmp_path / "peace", kafka_broker.bootstrap, name), other)
    run_locally(peace)
    assert kinds(found(store)[0]) == kinds(found(other)[0])
    assert len(found(store)[2]) > len(found(other)[2])

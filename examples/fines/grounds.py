"""Where the main job is killed: on waterclock's broker and SQLite, or on Apache Kafka and PostgreSQL.

A ground is a broker with the whole replay in a topic, and a place for the tables of each run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from waterclock.errors import UsageError
from waterclock.examples.brokers import apache_kafka, check_for_kafka

from .feed import TOPIC, send_all
from .log import read_log, without_penalties
from .main import PARTITIONS, SHIPPED
from .replay import make_replay
from .tables import PostgresTables, SQLiteTables, Tables

RUNS = ("untouched", "killed")
_PER_BATCH = "per_batch = 2500"  # so that there are batches enough to be killed in
_SHORT_LIVES = """
[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"   # what compiles for long runs only costs here
"""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ground:
    """A broker at `servers` with the replay in its topic. A run has a name, a folder, a pipeline's file and tables."""

    home: Path
    servers: str
    sink: Callable[[str], str]  # the table [sink] for a run of that name
    tables: Callable[[str], Tables]

    def folder(self, name: str) -> Path:
        """The folder of the run `name`."""
        return self.home / name

    def file(self, name: str) -> Path:
        """The pipeline's file of the run `name`; it is the main job's, but for its broker, batches and sink."""
        file = self.folder(name) / "pipeline.toml"
        shipped = (files(__package__) / "pipeline.toml").read_text()
        text = shipped[: shipped.index("[sink]")].replace(SHIPPED, self.servers).replace("per_batch = 4000", _PER_BATCH)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + self.sink(name) + _SHORT_LIVES)
        return file


@contextmanager
def own(home: Path, seed: int, say: Say) -> Iterator[Ground]:
    """waterclock's broker, and SQLite."""
    from waterclock.broker import Broker

    with Broker(home / "broker") as broker:
        say(f"waterclock's broker at {broker.bootstrap}, tables in SQLite")
        _fill(broker.bootstrap, seed, say)
        yield Ground(
            home,
            broker.bootstrap,
            lambda name: '[sink]\nformat = "sqlite"\npath = "fines.db"\n',
            lambda name: SQLiteTables(home / name / "fines.db"),
        )


@contextmanager
def servers(home: Path, seed: int, say: Say) -> Iterator[Ground]:
    """Apache Kafka in a process of its own, and PostgreSQL. EnvironmentMissing where one of them cannot be had."""
    from waterclock.bench.servers import postgres

    check_for_kafka()
    with postgres.running_server() as database, apache_kafka(home / "kafka") as address:
        say(f"Apache Kafka at {address}, tables in PostgreSQL ({database.url()})")
        _fill(address, seed, say)
        url = database.url()
        yield Ground(
            home,
            address,
            lambda name: f'[sink]\nformat = "postgres"\nurl = "{url}"\nschema = "{name}"\n',
            partial(PostgresTables, url),
        )


GROUNDS: Mapping[str, Callable[[Path, int, Say], AbstractContextManager[Ground]]] = {"own": own, "servers": servers}


def _fill(address: str, seed: int, say: Say) -> None:
    replay = make_replay(without_penalties(read_log()), seed)
    send_all(address, PARTITIONS, replay)
    say(f"{replay.events:,} lines of the replay are in the topic {TOPIC!r}, in {PARTITIONS} partitions")


def empty(home: Path) -> None:
    """Make the folder `home`, and remove what an earlier run left there; nothing else is touched."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in (*RUNS, "broker", "kafka"):
            if (home / name).exists():
                shutil.rmtree(home / name)
    except (OSError, ValueError) as error:
        raise UsageError(f"the folder {str(home)!r} cannot be used ({error}): name another with --folder") from error

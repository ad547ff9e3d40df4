"""What several files of tests share: one Spark session, small and quick to start; one PostgreSQL; places for sinks."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest_plugins = ["tests.campaign", "tests.turns", "tests.side_by_side"]

# what it asserts for several files of tests is told as if it stood in them
pytest.register_assert_rewrite("tests.streaming.files.ways", "tests.spark.topic_contract", "tests.spark.topic_steps")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cdc.mariadb import MariaServer
    from tests.postgres_server import PostgresServer
    from tests.sinks.stores import Database, MirroringStore, Store
    from waterclock.testing import Broker

# A shell's `make test &` has the tests ignore Ctrl-C, and all that they start; some of them send one.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    # what was collected stays until the end: without this, each of the tests' own collections goes through all of it
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def modules_stay() -> Iterator[None]:
    """What a file's tests imported stays too, and what a benchmark's measurement thawed: collections pass over it."""
    yield
    gc.collect()
    gc.freeze()


QUICK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from waterclock.spark.session.session import start

    session = start("tests", 2, QUICK, tmp_path_factory.mktemp("spark") / "spark.log").spark
    yield session
    session.stop()


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[Broker]:
    """The plugin's, for a file instead of the session: nothing of it is flushed while others' flushes are counted."""
    from waterclock.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property; a file whose tests each need a folder of their own says so itself."""
    return tmp_path_factory.mktemp("reading")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that runs; a test that stops it starts it again."""
    from tests.postgres_server import running_server

    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """One server for all tests of a run."""
    pytest.importorskip("pymysqlreplication", reason="it comes with the extra cdc")
    from tests.cdc.mariadb import running_server

    with running_server(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """One server for all tests of a run."""
    pytest.importorskip("pymysqlreplication", reason="it comes with the extra cdc")
    from tests.cdc.mysql import running_server

    with running_server(tmp_path_factory.mktemp("mysql")) as server:
        yield server


_POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
DATABASES = ["sqlite", _POSTGRES, "duckdb"]  # that take changes of tables
SQL = ["sqlite", _POSTGRES, pytest.param("mysql", marks=pytest.mark.mariadb), "duckdb"]


@pytest.fixture(params=DATABASES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MirroringStore]:
    """A place that speaks SQL and can hold a mirror, new for each test but for its server, where the schema shop goes."""
    yield from _with_a_mirror(request, tmp_path)


@pytest.fixture
def database(target: MirroringStore) -> MirroringStore:
    """The same; tests of captures have another `database`."""
    return target


@pytest.fixture(params=SQL)
def sql_store(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A place that speaks SQL, new for each test."""
    return store_of(request, tmp_path)


@pytest.fixture
def store(database: Database) -> Store:
    """A place for a sink; the contract suites, which every sink passes, have `any_store` under this name."""
    return database


@pytest.fixture(params=[*DATABASES, "delta"])
def mirroring(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MirroringStore]:
    """A place that takes changes of tables, new for each test."""
    from tests.sinks.stores import DeltaStore

    if request.param == "delta":
        yield DeltaStore(tmp_path)
    else:
        yield from _with_a_mirror(request, tmp_path)


@pytest.fixture(scope="session")
def tables_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with catalogs of Delta Lake and of Iceberg."""
    from tests.spark.tables.stores import session_with_tables

    with session_with_tables(tmp_path_factory.mktemp("tables")) as session:
        yield session


LAKES = ["delta", "delta by executors", "iceberg", "iceberg by executors"]
OF_SPARK = ["a table of delta", "a table of iceberg"]  # in Spark's catalog, written by Spark
STORES = [*SQL, *LAKES, "topic"]
THROUGH_SPARK = [pytest.param(name, marks=[pytest.mark.servers, pytest.mark.long(seconds=5)]) for name in OF_SPARK]


# each of its tests loads Iceberg's package anew, and "iceberg" and the other two by executors are tried each time
_ICEBERG_FILES = pytest.param("iceberg by executors", marks=pytest.mark.long(seconds=1))


@pytest.fixture(
    params=[*(_ICEBERG_FILES if name == "iceberg by executors" else name for name in STORES), *THROUGH_SPARK]
)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A place for a sink, new for each test: every sink in turn."""
    from tests.sinks.file_stores import DeltaFileStore, IcebergFileStore
    from tests.sinks.stores import DeltaStore, IcebergStore, TopicStore

    if request.param in OF_SPARK:
        from tests.spark.tables.stores import TableStore

        return TableStore(request.getfixturevalue("tables_spark"), request.param.rpartition(" ")[2])
    if request.param == "topic":
        return TopicStore(request.getfixturevalue("kafka_broker").bootstrap)
    in_a_folder = {
        "delta": DeltaStore,
        "delta by executors": DeltaFileStore,
        "iceberg": IcebergStore,
        "iceberg by executors": IcebergFileStore,
    }.get(request.param)
    return store_of(request, tmp_path) if in_a_folder is None else in_a_folder(tmp_path)


def _with_a_mirror(request: pytest.FixtureRequest, folder: Path) -> Iterator[MirroringStore]:
    from tests.sinks.stores import PostgresStore

    store: Any = store_of(request, folder)
    yield store
    if isinstance(store, PostgresStore):
        store.run("DROP SCHEMA IF EXISTS shop CASCADE")


def store_of(request: pytest.FixtureRequest, folder: Path) -> Database:
    from tests.sinks.database_stores import DuckDBStore, MySQLStore
    from tests.sinks.stores import PostgresStore, SQLiteStore

    if request.param == "sqlite":
        return SQLiteStore(folder)
    if request.param == "duckdb":
        return DuckDBStore(folder)
    if request.param == "mysql":
        return MySQLStore(request.getfixturevalue("mariadb"))
    return PostgresStore(request.getfixturevalue("postgres"))

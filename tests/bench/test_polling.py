"""`waterclock bench polling`: who polls has each row once, and the command. Speed is not looked at."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

import psycopg

from tests.bench.conftest import quiet
from tests.bench.test_polling_figures import RECORD
from tests.postgres_server import PostgresServer
from waterclock import cli
from waterclock.bench.polling import campaign, commits, figures, in_process, poller, tasks, worker, workers
from waterclock.bench.servers import postgres as server_of_benchmarks
from waterclock.errors import WaterclockError, WrongAnswer

FAR, DUE = 50, 20


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """A database of the test's own."""
    name = f"polling_{uuid.uuid4().hex}"
    with tasks.connected(postgres.url()) as connection:
        connection.execute(f"create database {name}")
        yield postgres.url(database=name)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def connection(url: str) -> Iterator[poller.Connection]:
    """To a table where some tasks are due, and more in 100 days."""
    with tasks.connected(url) as connection:
        tasks.make(connection, FAR)
        tasks.add_burst(connection, DUE, tasks.now_us())
        connection.execute("set lock_timeout = '5s'")  # who waits for another one's rows fails
        yield connection


class Between:
    """A connection on which something else happens before each claim."""

    def __init__(self, connection: poller.Connection, happens: Callable[[], object]) -> None:
        self._connection, self._happens = connection, happens

    def execute(self, query: str, *arguments: Any, **settings: Any) -> Any:
        if query == poller.CLAIM:
            self._happens()
        return self._connection.execute(query, *arguments, **settings)


# Who polls


@pytest.mark.postgres
@pytest.mark.parametrize("way", poller.WAYS)
def test_what_is_due_is_taken_once_by_batches_and_the_rest_stays(way: str, connection: poller.Connection) -> None:
    polls = [poller.WAYS[way](connection, 15) for _ in range(3)]
    assert [(len(poll.won), poll.seen) for poll in polls] == [(15, 15), (5, 5), (0, 0)]
    assert len({task for poll in polls for task in poll.won}) == DUE
    assert tasks.waiting(connection) == FAR


@pytest.mark.postgres
def test_rows_that_another_worker_is_taking_are_passed_over(url: str, connection: poller.Connection) -> None:
    with psycopg.connect(url) as other:  # its commit comes when it is closed
        theirs = poller.skip_locked(other, 15)
        ours = poller.skip_locked(connection, 15)
        assert (len(theirs.won), len(ours.won), set(theirs.won) & set(ours.won)) == (15, 5, set())


@pytest.mark.postgres
def test_rows_that_another_worker_took_since_they_were_seen_are_lost(url: str, connection: poller.Connection) -> None:
    with tasks.connected(url) as other:
        theirs: list[poller.Poll] = []
        between: Any = Between(connection, lambda: theirs.append(poller.optimistic(other, 15)))
        ours = poller.optimistic(between, DUE)
    assert (len(theirs[0].won), len(ours.won), ours.seen) == (15, 5, DUE)
    assert not set(theirs[0].won) & set(ours.won)


def test_a_worker_rests_only_when_it_has_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = [poller.Poll([7], 1, 1), poller.Poll([], 3, 2), poller.Poll([], 0, 1), poller.Poll([8], 1, 1)]
    happened: list[int | str] = []

    def way(connection: Any, batch: int) -> poller.Poll:
        happened.append(polls[0].seen)
        if len(polls) == 1:
            one.over.set()
        return polls.pop(0)

    def rest(*_: int) -> int:
        happened.append("rest")
        return 0

    monkeypatch.setattr(worker, "rest_ns", rest)
    one = worker.Worker(None, way, 500)  # type: ignore[arg-type]
    one.run(1_000, 0)
    assert happened == [1, 3, 0, "rest", 1]
    assert (one.failure, one.counters.won, one.counters.lost, one.counters.queries) == (None, 2, 3, 5)


@pytest.mark.postgres
def test_a_worker_counts_what_it_saw(connection: poller.Connection) -> None:
    one = worker.Worker(connection, poller.skip_locked, 15)
    assert [one.poll() for _ in range(3)] == [True, True, False]
    assert (one.counters.won, one.counters.lost, one.counters.queries, len(one.empty_ns)) == (DUE, 0, 3, 1)
    assert [task for task, _ in one.given] == sorted({task for task, _ in one.given})


@pytest.mark.postgres
def test_what_was_done_is_removed_and_what_is_added_is_due_when_it_says(connection: poller.Connection) -> None:
    poller.skip_locked(connection, DUE)
    tasks.clear(connection)
    dues = tasks.add_some(connection, 0.02)
    rows = connection.execute("select id, due from task where id = any(%s)", [list(dues)]).fetchall()
    assert dict(rows) == {task: tasks.moment(due_us) for task, due_us in dues.items()}
    assert connection.execute("select count(*) from task").fetchall() == [(FAR + len(dues),)]


@pytest.mark.postgres
def test_a_task_that_is_due_in_100_days_and_is_gone_fails_the_run(
    postgres: PostgresServer, connection: poller.Connection
) -> None:
    ground = campaign.Ground(postgres, connection, 0.1, 1, quiet)
    team, nobody = workers.Team(poller.SKIP_LOCKED, 10, 1), workers.Workers()
    nobody.given = [(task, tasks.now_us()) for task in poller.skip_locked(connection, DUE).won]
    dues = dict.fromkeys((task for task, _ in nobody.given), 0)
    campaign._check(ground, team, FAR, dues, nobody)
    connection.execute("update task set done = true where id = 1")
    with pytest.raises(WrongAnswer, match="batches of 500: 49 tasks are left that are not due, of 50"):
        campaign._check(ground, team, FAR, dues, nobody)


@pytest.mark.postgres
def test_a_server_that_does_not_flush_is_not_measured(connection: poller.Connection) -> None:
    with pytest.raises(WrongAnswer, match="PostgreSQL does not flush what it commits: fsync is off"):
        tasks.settings(connection)  # the tests' own server is quick and careless


def test_the_settings_of_a_server_stand_in_its_file_behind_what_is_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_of_benchmarks.PostgresServer, "_run", lambda *_: None)
    monkeypatch.setattr(server_of_benchmarks.shutil, "chown", lambda *_: None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "pg_hba.conf").touch()
    server_of_benchmarks.PostgresServer(tmp_path, tmp_path, tasks.SERVER).make()
    lines = (tmp_path / "data" / "postgresql.conf").read_text().splitlines()
    assert [line for line in lines if line.startswith("fsync")] == [
        "fsync = off",
        "fsync = 'on'",
    ]  # the last one counts


@pytest.mark.postgres
def test_commits_are_counted_over_all_connections(url: str) -> None:
    found = commits.measure(url, 2, 0.02)
    with tasks.connected(url) as connection:
        ((rows,),) = connection.execute("select count(*) from bare").fetchall()
    assert rows >= 2
    assert found["a_second"] > 0 < found["p50_ms"]


@pytest.mark.postgres
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("way", poller.WAYS)
def test_three_workers_have_each_task_once(way: str, url: str, connection: poller.Connection) -> None:
    with workers.running(url, workers.Team(way, 10, 3, 7)) as three:
        three.until_won(DUE)
        dues = tasks.add_burst(connection, 1_000, tasks.now_us())
        three.until_won(DUE + 1_000)
    figures.check(way, dues, [given for given in three.given if given[0] in dues])
    assert len(three.given) == DUE + 1_000


@pytest.mark.postgres
@pytest.mark.long(seconds=3)
def test_a_worker_that_fails_ends_the_run_and_leaves_nobody_behind(url: str) -> None:
    with (
        pytest.raises(WaterclockError, match="a worker ended before it was told to"),
        workers.running(url, workers.Team(poller.SKIP_LOCKED, 10, 2)) as two,  # there is no table
    ):
        two.until_won(1)
    assert [process.poll() is None for process in two._processes] == [False, False]


def test_who_is_stopped_while_a_worker_starts_ends_that_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Started:
        stdin = stdout = io.StringIO()
        killed = waited = 0

        def kill(self) -> None:
            self.killed += 1

        def wait(self) -> None:
            self.waited += 1

    started: list[Started] = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark leaves one of its own
    before = signal.getsignal(signal.SIGINT)

    def start(words: list[str]) -> Started:
        started.append(Started())
        if len(started) == 2:
            signal.raise_signal(signal.SIGINT)  # it runs, and nobody has got it yet
        return started[-1]

    monkeypatch.setattr(workers, "_started", start)
    with pytest.raises(KeyboardInterrupt), workers.running("somewhere", workers.Team(poller.SKIP_LOCKED, 10, 3)):
        pytest.fail("they were not under way")
    assert [(each.killed, each.waited) for each in started] == [(1, 1), (1, 1)]
    assert signal.getsignal(signal.SIGINT) is before


# The command


def test_quick_is_other_sizes_and_what_stands_behind_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Any, ...]] = []

    def measure(*arguments: Any) -> dict[str, Any]:
        asked.append(arguments[:-1])
        return RECORD

    monkeypatch.setattr(campaign, "measure", measure)
    assert cli.main(["bench", "polling", "--quick", "--seconds", "2", "--out", str(tmp_path)]) == 0
    assert cli.main(["bench", "polling", "--out", str(tmp_path)]) == 0
    assert asked == [([10_000], 1, 2.0), ([1_000, 100_000, 1_000_000], 3, 4.0)]
    assert capsys.readouterr().out.startswith("$ waterclock bench polling --sizes 10000 --rounds 1 --seconds 2\n")


def test_without_postgresql_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_of_benchmarks, "_binaries", lambda: None)
    assert cli.main(["bench", "polling", "--quick", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "waterclock: PostgreSQL's server is not installed (Debian: apt install postgresql)"


@pytest.mark.postgres
@pytest.mark.long(seconds=50)
def test_a_table_is_polled_in_all_ways_beside_a_timer(tmp_path: Path) -> None:
    options = ["--sizes", "100,200", "--rounds", "1", "--seconds", "0.1", "--out", str(tmp_path)]
    assert cli.main(["bench", "polling", *options]) == 0
    found = json.loads((tmp_path / "polling.json").read_text())["figures"]
    assert found["server"]["fsync"] == "on"
    cells = {(r["who"], r["interval_ms"], r["workers"], r["pending"]) for r in found["cells"]}
    polled = {
        (way, ms, number, size)
        for way in poller.WAYS
        for ms in (1, 100, 1000)
        for number in (1, 3)
        for size in (100, 200)
    }
    assert cells == polled | {(in_process.WHO, None, 1, size) for size in (100, 200)}
    assert {(r["who"], r["workers"]) for r in found["bursts"] if r["batch"] == 1} == {
        (way, number) for way in poller.WAYS for number in (1, 2, 3)
    }
    assert all(r["lost"] == 0 for r in found["cells"] if r["workers"] == 1)
    assert (tmp_path / "polling.png").is_file()


@pytest.mark.postgres
@pytest.mark.long(seconds=5)
def test_who_stops_it_leaves_no_worker_and_no_server_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "waterclock.cli", "bench", "polling", "--quick", "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "every 1 ms" not in process.stderr.readline():
            assert process.poll() is None
        running = _below(process.pid)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 1
    assert said.splitlines()[-1] == "waterclock: stopped; nothing was written"
    assert [pid for pid in running if Path(f"/proc/{pid}").exists()] == []


def _below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

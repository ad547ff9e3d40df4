"""`waterclock demo cdc`: whom it kills it kills, while there is work; what it starts, it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from math import ceil
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pymysql")
pytest.importorskip("psycopg")

from waterclock import cli
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.examples import command as demo
from waterclock.examples.cdc import compare, main, servers
from waterclock.examples.cdc.shop import Shop
from waterclock.examples.cdc.tables import tables
from waterclock.examples.processes import Process


def test_twenty_tables_have_every_type_and_every_kind_of_key() -> None:
    found = tables()
    assert len({table.name for table in found}) == 20
    assert {column.how for table in found for column in (*table.key, *table.columns)} == set(compare._SAME)
    assert {len(table.key) for table in found} == {1, 2}


class Victims:
    """Processes that are up or not."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.up = True

    def kill(self, name: str) -> bool:
        if self.up:
            self.killed.append(name)
        return self.up


def test_each_process_is_killed_in_turn_and_the_same_seed_kills_alike() -> None:
    def killed(seed: int) -> list[str]:
        clock, victims = ManualClock(), Victims()
        kills = main.Kills(seed, 8, clock)
        for done in range(101):
            kills.look({"written": 1, "captured": done / 100, "applied": done / 200}, victims)  # type: ignore[arg-type]
            clock.advance_s(0.1)
        assert kills.left > 0
        for _ in range(30):
            kills.look({"written": 1, "captured": 1, "applied": 1}, victims)  # type: ignore[arg-type]
            clock.advance_s(0.1)
        assert kills.left == 0
        return victims.killed

    assert sorted(killed(1)) == sorted(2 * ["cdc", "broker", "pipeline", "PostgreSQL"])
    assert killed(1) == killed(1) != killed(2)


def test_a_process_that_was_killed_just_now_is_killed_once_it_runs_again() -> None:
    """Such a kill was left out without a word: of eight, six happened."""
    clock, victims = ManualClock(), Victims()
    kills = main.Kills(1, 4, clock)
    victims.up = False
    for _ in range(30):
        kills.look({"written": 1, "captured": 1, "applied": 1}, victims)  # type: ignore[arg-type]
        clock.advance_s(0.1)
    assert (kills.left, victims.killed) == (4, [])
    victims.up = True
    kills.look({"written": 1, "captured": 1, "applied": 1}, victims)  # type: ignore[arg-type]
    assert (kills.left, len(victims.killed)) == (0, 4)


@pytest.mark.parametrize("changes", [1, 20, 5_000])
def test_nobody_is_killed_when_the_work_is_done(changes: int) -> None:
    """All is captured and applied at once, as a few thousand changes are: then all kills came after the work."""
    clock, victims = ManualClock(), Victims()
    kills, done = main.Kills(3, 8, clock), 0.0
    while kills.left:
        before, done = len(victims.killed), ceil(kills.until * changes) / changes
        kills.look({"written": done, "captured": done, "applied": done}, victims)  # type: ignore[arg-type]
        clock.advance_s(0.1)
        assert done < 1 or changes < 20 or len(victims.killed) == before
    assert kills.until == 1
    assert len(victims.killed) == 8


def test_the_shop_waits_where_it_may_not_write_on() -> None:
    shop = Shop(lambda: None, 1, 10, tables())
    assert shop._goes_on()
    shop.may_write(4)
    shop.written = 4
    waiting = threading.Thread(target=shop._goes_on)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    shop.stop()
    waiting.join(20)
    assert not shop._goes_on()
    shop.written = 10
    assert not Shop._goes_on(shop)


def test_a_process_that_is_killed_is_started_again_with_what_it_had_started_gone(tmp_path: Path) -> None:
    process = Process(
        "sleeper", ["sh", "-c", f"sleep 600 & echo $! >> {tmp_path}/started; wait"], tmp_path / "log", SystemClock()
    )
    process.start()
    try:
        first = _pids(tmp_path / "started", 1)
        process.kill()
        second = _pids(tmp_path / "started", 2, process)
        assert process.kills == 1
        _until_gone(first[0])
        assert _runs(second[1])
    finally:
        process.stop()
    _until_gone(second[1])


def test_a_kill_takes_along_who_made_a_session_of_its_own(tmp_path: Path) -> None:
    """As PostgreSQL's backends do: they ended their statement, and committed, after the kill."""
    script = f"setsid sh -c 'echo $$ >> {tmp_path}/started; sleep 600' & wait"
    process = Process("sleeper", ["sh", "-c", script], tmp_path / "log", SystemClock())
    process.start()
    try:
        own = _pids(tmp_path / "started", 1)[0]
        assert process.kill()
        _until_gone(own)
        assert not process.kill()
        assert process.kills == 1
    finally:
        process.stop()
        _ended(own)


def _ended(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _pids(file: Path, count: int, kept: Process | None = None) -> list[int]:
    end = time.monotonic() + 20
    while not file.exists() or len(file.read_text().split()) < count:
        assert time.monotonic() < end
        if kept is not None:
            kept.keep()
        time.sleep(0.02)
    return [int(pid) for pid in file.read_text().split()]


def _until_gone(pid: int) -> None:
    end = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_that_never_stays_up_is_told_of_with_its_last_words(tmp_path: Path) -> None:
    clock = ManualClock()
    process = Process("broken", ["sh", "-c", "echo no such thing; exit 3"], tmp_path / "log", clock)
    process.start()

    def keep() -> None:
        for _ in range(40):
            assert process._process is not None
            process._process.wait()
            process.keep()
            clock.advance_s(1)

    with pytest.raises(WaterclockError, match=r"broken ended 12 times in a row: .*no such thing"):
        keep()


def test_a_process_that_does_not_come_to_its_end_is_told_of_with_its_last_words(tmp_path: Path) -> None:
    """A pipeline's last batch may lack in its target until it has."""
    Process("good", ["true"], tmp_path / "log", ManualClock()).finish()
    with pytest.raises(WaterclockError, match="broken did not come to its end: no such thing"):
        Process("broken", ["sh", "-c", "echo no such thing; exit 3"], tmp_path / "log", ManualClock()).finish()


def test_where_a_server_is_missing_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "mariadbd" else name)
    with pytest.raises(EnvironmentMissing, match=r"no mariadbd of MariaDB here: install them \(Debian: apt install"):
        servers.programs()


def test_where_a_package_is_missing_one_sentence_says_how_to_get_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "pgpq" else name)
    assert cli.main(["demo", "cdc"]) == 1
    assert "pgpq is missing, and this demo needs it: pip install 'pyspark" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--changes", "0"], ["--folder", "/dev/null/x"]])
def test_what_cannot_be_done_is_exit_code_2_and_one_sentence(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "cdc", *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# The whole of it -----------------------------------------------------------------------------------------------


def command(folder: Path, *more: str) -> list[str]:
    programs("MariaDB", "PostgreSQL")
    return [sys.executable, "-m", "waterclock.cli", "demo", "cdc", "--folder", str(folder), *more]


@pytest.mark.long(seconds=100)
@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.postgres
@pytest.mark.parametrize("to", ["postgres", "duckdb", "delta"])
@pytest.mark.parametrize(("changes", "kills"), [(2_000, 0), (20_000, 8)])
def test_the_target_equals_the_source_and_no_order_is_wrong(tmp_path: Path, changes: int, kills: int, to: str) -> None:
    options = ["--changes", str(changes), *(["--kills", str(kills)] if kills else []), "--to", to, "--json"]
    done = subprocess.run(command(tmp_path, *options), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert (found["verdict"], found["order_errors"], found["rows"]["shown"]) == ("equal", 0, [])
    assert found["order"]["versions"] == found["changes"] == found["target"]["applied"] >= changes
    assert all(found["operations"].values())
    assert found["rows_compared"] > changes / 10
    assert sum(found["kills"].values()) == kills


@pytest.mark.long(seconds=120)
@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.postgres
@pytest.mark.parametrize("to", ["postgres", "sqlite", "duckdb"])
def test_a_full_database_under_writes_arrives_whole_with_kills(tmp_path: Path, to: str) -> None:
    options = ["--existing", "20k", "--changes", "4000", "--kills", "4", "--to", to, "--json"]
    done = subprocess.run(command(tmp_path, *options), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert (found["verdict"], found["order_errors"], found["rows"]["shown"]) == ("equal", 0, [])
    assert found["order"]["versions"] == found["changes"] + found["order"]["older"] == found["target"]["applied"]
    assert found["order"]["older"] > 19_000
    assert sum(found["kills"].values()) == 4


@pytest.mark.mariadb
def test_no_log_has_the_rows_that_are_there_already(tmp_path: Path) -> None:
    """InnoDB may need a binlog for a moment more, and the server keeps it without an error: all came by the log."""
    database = servers.MariaDB(tmp_path / "mariadb", tmp_path / "log", programs("MariaDB"), SystemClock())
    try:
        database.start()
        shop = Shop(database.connection, 1, 10)
        shop.make()
        shop.fill(2_001)
        with database.connection() as connection, connection.cursor() as cursor:
            assert cursor.execute("show binary logs") == 1
            for name, keys in shop.older.items():
                cursor.execute(f"select count(*), min(rev), max(rev) from shop.{name}")
                assert cursor.fetchone() == (len(keys), 1, 1)
            cursor.execute("show binlog events limit 100")
            assert not any(row[2].endswith("_rows_v1") for row in cursor.fetchall())
    finally:
        database.process.stop()
    assert sum(map(len, shop.older.values())) == 2_001


def programs(*of: str) -> dict[str, str]:
    """Those of the databases `of` here; the test is skipped where they are not."""
    try:
        return servers.programs("the test", of)
    except EnvironmentMissing as error:
        pytest.skip(str(error))


@pytest.mark.mariadb
def test_a_database_that_starts_leaves_the_temporary_tables_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A MariaDB removes, as it starts, the temporary tables in its folder for such, which may be a neighbour's too."""
    neighbours = tmp_path / "#sql-temptable-1-1-1.MAI"
    neighbours.touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = programs("MariaDB")
    database = servers.MariaDB(tmp_path / "mariadb", tmp_path / "log", found, SystemClock())
    try:
        database.start()
    finally:
        database.process.stop()
    assert neighbours.exists()


def test_who_ends_it_while_a_database_is_made_ends_that_too(tmp_path: Path) -> None:
    """What makes a database starts others, which made its folder anew when it had been removed."""
    script = f"setsid sh -c 'echo $$ >> {tmp_path}/started; sleep 600' & wait"
    outer = f"servers._run(['sh', '-c', {script!r}], Path({str(tmp_path / 'log')!r}))"
    imports = "from pathlib import Path; from waterclock.examples.cdc import servers"
    demo = subprocess.Popen([sys.executable, "-c", f"{imports}; {outer}"], stderr=subprocess.DEVNULL)
    try:
        made = _pids(tmp_path / "started", 1)[0]
        demo.send_signal(signal.SIGINT)
        demo.wait(60)
        _until_gone(made)
    finally:
        _ended(made)


@pytest.mark.long(seconds=10)
@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.postgres
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_leaves_nothing_running(tmp_path: Path, sent: signal.Signals) -> None:
    """And a terminal that is closed, which left all of it; nor does one who presses it twice."""
    log = tmp_path / "demo.log"
    folder = tmp_path / "out"
    # whatever the tests were started by: under nohup a SIGHUP is passed over, by the demo too
    words = f"import os, signal, sys; signal.signal({int(sent)}, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    with log.open("w") as out:
        demo = subprocess.Popen([sys.executable, "-c", words, *command(folder, "--json")], stdout=out, stderr=out)
    toml = folder / "pipeline.toml"
    end = time.monotonic() + 120
    while not toml.exists() or "host=" not in toml.read_text():
        assert demo.poll() is None, log.read_text()
        assert time.monotonic() < end
        time.sleep(0.1)
    place = toml.read_text().partition("host=")[2].partition("/postgres")[0]
    assert _of(place, str(folder))
    demo.send_signal(sent)
    time.sleep(0.05)
    demo.send_signal(sent)
    assert demo.wait(60) == 1
    assert not Path(place).exists()
    end = time.monotonic() + 20  # what was sent SIGKILL, and is nobody's child any more, may be a moment on its way
    while left := _of(place, str(folder)):
        assert time.monotonic() < end, left
        time.sleep(0.05)
    assert "Traceback" not in log.read_text()


def _of(*places: str) -> list[str]:
    """The command lines of processes that have one of these places in it."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if any(place in line for place in places):
            found.append(line)
    return found

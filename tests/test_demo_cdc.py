"""`waterclock demo cdc`: what it believes nobody, it finds; what it starts, it ends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pymysql")
pytest.importorskip("psycopg")

from waterclock import cli
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.examples.cdc import compare, main, servers
from waterclock.examples.cdc.checker import Checker, OrderErrors
from waterclock.examples.cdc.processes import Process
from waterclock.examples.cdc.shop import Version
from waterclock.examples.cdc.tables import Column, ShopTable, tables

HISTORY = [
    [Version("item", "insert", (1,), 1), Version("item", "insert", (2,), 1)],
    [Version("item", "update", (1,), 2)],
    [Version("item", "delete", (2,), 1), Version("item", "update", (1,), 3)],
]
Message = tuple[int, bytes, bytes]


def message(transaction: int, place: int, partition: int = 0, **other: Any) -> Message:
    version = HISTORY[transaction][place]
    key = json.dumps({"pk.id": version.key[0]}).encode()
    event = {
        "gtid": f"0-1-{transaction + 8}", "sequence": transaction + 100, "xoffset": place,
        "table": version.table, "type": version.operation,
        "data": {"id": version.key[0], "rev": version.rev},
    } | other  # fmt: skip
    if place == len(HISTORY[transaction]) - 1:
        event = {"commit": True} | event
    return partition, key, json.dumps(event).encode()


RIGHT = [message(0, 0), message(0, 1), message(1, 0), message(2, 0), message(2, 1)]


def checked(messages: list[Message]) -> OrderErrors:
    checker = Checker(HISTORY, 7, {"item": ("id",)})
    for each in messages:
        checker.take(*each)
    return checker.end()


def test_what_was_committed_and_nothing_else_has_no_errors() -> None:
    assert checked(RIGHT) == OrderErrors(versions=5)
    assert checked([RIGHT[1], RIGHT[3], RIGHT[0], RIGHT[2], RIGHT[4]]).errors == 0  # other keys may stand between


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        (RIGHT[:-1], {"missing": 1}),
        ([*RIGHT, RIGHT[0]], {"twice": 1, "swapped": 1}),
        ([RIGHT[0], RIGHT[1], RIGHT[3], RIGHT[4], RIGHT[2]], {"swapped": 1}),
        ([*RIGHT[:2], message(1, 0, partition=1), *RIGHT[3:]], {"swapped": 2}),
        ([*RIGHT[:4], message(2, 1, sequence=100)], {"swapped": 1}),
        ([*RIGHT[:2], (0, RIGHT[1][1], RIGHT[2][2]), *RIGHT[3:]], {"strange": 1}),
        ([*RIGHT[:2], (1, RIGHT[1][1], RIGHT[2][2]), *RIGHT[3:]], {"strange": 1, "swapped": 2}),
        ([*RIGHT[:4], message(2, 1, data={"id": 1, "rev": 4})], {"strange": 1}),
        ([*RIGHT, message(0, 0, gtid="0-1-99")], {"strange": 1}),
        ([*RIGHT[:4], message(2, 1, commit=False)], {"torn": 1}),
        ([message(0, 0, commit=True), *RIGHT[1:]], {"torn": 1}),
    ],
)
def test_each_order_error_is_counted(messages: list[Message], wrong: dict[str, int]) -> None:
    found = checked(messages)
    counts = {name: getattr(found, name) for name in ("missing", "twice", "strange", "swapped", "torn")}
    assert {name: count for name, count in counts.items() if count} == wrong
    assert found.errors == sum(wrong.values())


@pytest.mark.parametrize(
    ("how", "there", "equal", "other"),
    [
        ("text", "12.50", "12.50", "12.5"),
        ("number", "18446744073709551615", "18446744073709551615", "18446744073709551614"),
        ("float", "1e22", "10000000000000000000000", "10000000000000000000001000000"),
        ("bits", b"\x01\x00", "256", "1"),
        ("set", "a,b", '["a","b"]', '["b","a"]'),
        ("set", "", "[]", '[""]'),
        ("json", '{"a": 1.10}', '{"a":1.10}', '{"a":1.2}'),
        ("bytes", b"\0\0", "AAA=", "AA=="),
    ],
)
def test_values_are_compared_as_what_they_are(how: str, there: Any, equal: str, other: str) -> None:
    table = ShopTable("item", (), (Column("value", "", how, lambda chance: None),))
    row = {"rev": "1", "value": there}
    assert compare._unlike(table, row, {"rev": "1", "value": equal}) == ""
    assert compare._unlike(table, row, {"rev": "1", "value": other}) != ""
    assert compare._unlike(table, row, {"rev": "1"}) != ""
    assert compare._unlike(table, row | {"value": None}, {"rev": "1"}) == ""


def test_twenty_tables_have_every_type_and_every_kind_of_key() -> None:
    found = tables()
    assert len({table.name for table in found}) == 20
    assert {column.how for table in found for column in (*table.key, *table.columns)} == set(compare._SAME)
    assert {len(table.key) for table in found} == {1, 2}


class Victims:
    def __init__(self) -> None:
        self.killed: list[str] = []

    def kill(self, name: str) -> None:
        self.killed.append(name)


def test_each_process_is_killed_in_turn_and_the_same_seed_kills_alike() -> None:
    def killed(seed: int) -> list[str]:
        clock, victims = ManualClock(), Victims()
        kills = main.Kills(seed, 8, clock)
        for done in range(101):
            kills.look({"captured": done / 100, "applied": done / 200}, victims)  # type: ignore[arg-type]
            clock.advance_s(0.1)
        assert kills.left > 0
        for _ in range(30):
            kills.look({"captured": 1, "applied": 1}, victims)  # type: ignore[arg-type]
            clock.advance_s(0.1)
        assert kills.left == 0
        return victims.killed

    assert sorted(killed(1)) == sorted(2 * ["cdc", "broker", "pipeline", "PostgreSQL"])
    assert killed(1) == killed(1) != killed(2)


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


def test_where_a_server_is_missing_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "mariadbd" else name)
    with pytest.raises(EnvironmentMissing, match=r"no mariadbd of MariaDB here: install them \(Debian: apt install"):
        servers.programs()


def test_where_a_package_is_missing_one_sentence_says_how_to_get_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "pgpq" else name)
    assert cli.main(["demo", "cdc"]) == 1
    assert "pgpq is missing: pip install 'waterclock[all]'" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--changes", "0"], ["--folder", "/dev/null/x"]])
def test_what_cannot_be_done_is_exit_code_2_and_one_sentence(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "cdc", *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# The whole of it -----------------------------------------------------------------------------------------------


def command(folder: Path, *more: str) -> list[str]:
    try:
        servers.programs()
    except EnvironmentMissing as error:
        pytest.skip(str(error))
    return [sys.executable, "-m", "waterclock.cli", "demo", "cdc", "--folder", str(folder), *more]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.postgres
@pytest.mark.parametrize(("changes", "kills"), [(2_000, 0), (20_000, 8)])
def test_the_target_equals_the_source_and_no_order_is_wrong(tmp_path: Path, changes: int, kills: int) -> None:
    options = ["--changes", str(changes), *(["--kills", str(kills)] if kills else []), "--json"]
    done = subprocess.run(command(tmp_path, *options), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert (found["verdict"], found["order_errors"], found["rows"]["shown"]) == ("equal", 0, [])
    assert found["order"]["versions"] == found["changes"] >= changes
    assert found["rows_compared"] > changes / 10
    assert sum(found["kills"].values()) >= kills / 2


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.postgres
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing_running(tmp_path: Path, sent: signal.Signals) -> None:
    log = tmp_path / "demo.log"
    folder = tmp_path / "out"
    with log.open("w") as out:
        demo = subprocess.Popen(command(folder, "--json"), stdout=out, stderr=out)
    toml = folder / "pipeline.toml"
    end = time.monotonic() + 120
    while not toml.exists() or "host=" not in toml.read_text():
        assert demo.poll() is None, log.read_text()
        assert time.monotonic() < end
        time.sleep(0.1)
    place = toml.read_text().partition("host=")[2].partition("/postgres")[0]
    assert _of(place, str(folder))
    demo.send_signal(sent)
    assert demo.wait(60) == 1
    assert not Path(place).exists()
    assert _of(place, str(folder)) == []
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

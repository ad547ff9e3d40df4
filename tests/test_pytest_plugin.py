"""The fixtures that every pytest run has once waterclock is installed: tried in pytest runs of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.web.reading import get

pytest.importorskip("kio")

ROOT = Path(__file__).parents[1]
PLUGIN = "waterclock.pytest_plugin"


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A pytest run in `folder`, with the plugin as its entry point would give it."""
    (folder / "test_it.py").write_text(tests)
    command, environment = command_of()
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def command_of() -> tuple[list[str], dict[str, str]]:
    """The command without its options, and its environment."""
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-s"]
    command += [word for name in ("no:cacheprovider", PLUGIN, "no:asyncio", "no:anyio") for word in ("-p", name)]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return command, {**os.environ, "PYTHONPATH": path}


def passed(done: subprocess.CompletedProcess[str], count: int) -> bool:
    return f"{count} passed" in done.stdout and done.returncode == 0


def test_one_broker_serves_the_session_and_each_test_has_a_topic_of_its_own(tmp_path: Path) -> None:
    tests = """
import pytest

seen = []

class TestA:
    @pytest.mark.parametrize("case", ["a b", "ü/x"])
    def test_one(self, kafka_broker, kafka_topic, case):
        assert kafka_broker.statistics().topics == len(seen) + 1
        seen.append((kafka_broker.bootstrap, kafka_topic))

class TestB(TestA):
    "The same names once more."

def test_two():
    assert len({where for where, _ in seen}) == 1
    assert len({topic for _, topic in seen}) == 4
"""
    done = run(tmp_path, tests)
    assert passed(done, 5), done.stdout


def test_a_fault_ends_with_its_test(tmp_path: Path) -> None:
    tests = """
def test_one(kafka_broker, kafka_topic):
    kafka_broker.faults.drop("Metadata", times=None)
    kafka_broker.faults.freeze(kafka_topic)

def test_two(kafka_broker):
    assert kafka_broker.call(lambda: kafka_broker.inside.table.intercept) is None
    assert not kafka_broker.call(lambda: kafka_broker.inside.flusher.frozen)
"""
    done = run(tmp_path, tests)
    assert passed(done, 2), done.stdout


def test_the_factory_makes_brokers_of_ones_own_and_closes_them(tmp_path: Path) -> None:
    tests = """
from waterclock.testing import ManualClock
import pytest

made = []

def test_one(kafka_broker_factory, tmp_path):
    broker = kafka_broker_factory(settings={"num.partitions": "3"}, clock=ManualClock())
    broker.advance_s(60)
    made.extend([broker, kafka_broker_factory(tmp_path / "data")])
    assert made[0].bootstrap != made[1].bootstrap
    assert (tmp_path / "data" / "store.log").exists()

def test_two():
    for broker in made:
        with pytest.raises(RuntimeError):
            broker.statistics()
"""
    done = run(tmp_path, tests)
    assert passed(done, 2), done.stdout


def test_the_data_of_a_session_is_gone_at_its_end(tmp_path: Path) -> None:
    tests = """
def test_one(kafka_broker):
    print("folder", kafka_broker.inside.folder)
"""
    done = run(tmp_path, tests)
    folder = next(line.split()[-1] for line in done.stdout.splitlines() if "folder" in line)
    assert folder.startswith("/")
    assert not Path(folder).exists()


def test_a_run_that_asks_for_no_broker_imports_none(tmp_path: Path) -> None:
    tests = """
import sys

def test_one():
    assert "waterclock.pytest_plugin" in sys.modules
    heavy = {"waterclock.broker", "waterclock.testing", "waterclock.timer", "kio", "crc32c", "asyncio", "sqlite3"}
    assert not heavy & set(sys.modules)
"""
    done = run(tmp_path, tests)
    assert passed(done, 1), done.stdout


@pytest.mark.parametrize("missing", ["kio", "crc32c"])
def test_a_fixture_without_its_extra_says_how_to_get_it(tmp_path: Path, missing: str) -> None:
    (tmp_path / "conftest.py").write_text(f"""
import importlib.abc, sys

class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nothing())
""")
    tests = """
def test_topic(kafka_topic): pass
def test_factory(kafka_broker_factory): kafka_broker_factory()
"""
    done = run(tmp_path, tests)
    assert done.stdout.count(f"{missing} is missing, and a broker needs it: pip install 'kio>=") >= 2
    assert "Traceback" not in done.stdout
    assert done.returncode == 1


def test_a_broker_does_not_import_hypothesis_for_kio(tmp_path: Path) -> None:
    tests = """
import socket, struct, sys

def test_one(kafka_broker):
    host, port = kafka_broker.bootstrap.split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(struct.pack(">ihhih", 10, 18, 2, 7, -1))  # ApiVersions 2
        assert client.recv(4)
    assert "kio" in sys.modules
    assert "hypothesis" not in sys.modules
"""
    done = run(tmp_path, tests, "-p", "no:hypothesispytest")
    assert passed(done, 1), done.stdout


def test_named_twice_the_plugin_is_registered_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"pytest_plugins = [{PLUGIN!r}]\n")
    done = run(tmp_path, "def test_one(kafka_topic): pass\n", "-p", PLUGIN)
    assert passed(done, 1), done.stdout + done.stderr


def test_the_entry_point_has_the_name_of_its_module() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert points == {PLUGIN: PLUGIN}


def test_the_fixtures_are_told_about(tmp_path: Path) -> None:
    done = run(tmp_path, "", "--fixtures")
    assert "kafka_broker [session scope]" in done.stdout
    assert "A Kafka broker for the whole session; `kafka_broker.bootstrap` is for bootstrap.servers." in done.stdout


def test_the_sample_of_the_guide_passes(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    guide = (ROOT / "docs" / "broker.md").read_text()
    sample = guide.split("nothing has to be imported or configured.\n\n```\n")[1].split("```")[0]
    assert "def test_an_order_is_sent(" in sample
    done = run(tmp_path, sample)
    assert passed(done, 1), done.stdout


def test_testing_exports_what_a_test_needs() -> None:
    from waterclock import testing

    assert {"Broker", "Error", "ManualClock"} <= set(testing.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_a_loop_turned_by_hand_is_a_fixture_and_what_its_mark_says_is_taken_or_refused(tmp_path: Path) -> None:
    tests = """
import asyncio, pytest
from waterclock import ManualClock

CLOCK = ManualClock(5.0)

def test_sixty_days(manual_loop):
    manual_loop.run_until_complete(asyncio.sleep(60 * 86_400))
    assert manual_loop.time() == manual_loop.clock.monotonic_s() == 60 * 86_400

def test_refused(manual_loop):
    with pytest.raises(Exception, match="pytest.mark.manual_loop"):
        manual_loop.run_until_complete(asyncio.start_server(print, "127.0.0.1", 0))

@pytest.mark.manual_loop(sockets="allowed")
def test_allowed(manual_loop):
    manual_loop.run_until_complete(asyncio.start_server(print, "127.0.0.1", 0)).close()

@pytest.mark.manual_loop(CLOCK)
def test_clock(manual_loop):
    assert manual_loop.clock is CLOCK

@pytest.mark.manual_loop("allowed")
def test_unnamed(manual_loop): pass

@pytest.mark.manual_loop(sockets="perhaps")
def test_another_word(manual_loop): pass
"""
    done = run(tmp_path, tests, "--strict-markers")
    assert "4 passed, 2 errors" in done.stdout
    assert (
        "takes (clock, sockets='allowed'): clock must be a ManualClock, or None for a new one, got 'allowed'"
        in done.stdout
    )
    assert "takes (clock, sockets='allowed'): sockets must be 'refused' or 'allowed', got 'perhaps'" in done.stdout
    assert "pytest_plugin.py" not in done.stdout


def test_a_test_that_is_paused_in_the_debugger_says_where_its_broker_is_seen(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(kafka_topic):\n    breakpoint()\n")
    command, environment = command_of()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        lines = iter(process.stdout.readline, "")
        url = next(found[1] for line in lines if (found := re.search(r"console at (\S+)", line)))
        status, page, _ = get(url)
        said, _ = process.communicate("c\n", timeout=60)
    assert (status, "<title>waterclock" in page) == (200, True)
    assert "1 passed" in said
    with pytest.raises(OSError, match="refused"):
        get(url)

"""packaging/: what the container file, the compose file and the systemd units start is started here, and asked how it is.

No image is built here and no service is installed: the commands are taken from the files, and get folders and ports of
their own.

Rule 1: a health check is run while its process runs and when it has ended: it succeeds, and it fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from waterclock import __version__, cli, wheel

ROOT = Path(__file__).parents[1]
CONTAINERFILE = (ROOT / "packaging/container/Containerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "packaging/container/compose.yaml").read_text(encoding="utf-8")
UNITS = {name: ROOT / f"packaging/systemd/waterclock-{name}.service" for name in ("broker", "relay")}
HOME = "/var/lib/waterclock"
Start = Callable[[list[str]], subprocess.Popen[str]]


def service(name: str) -> dict[str, Any]:
    """The lists of a service of the compose file, which are written as JSON is."""
    (text,) = re.findall(rf"^  {name}:\n((?:    .*\n|\n)+)", COMPOSE, re.M)
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    return {key: json.loads(value) for key, value in re.findall(r"^ +(\w+): (\[.*\])$", text, re.M)}


def unit(name: str) -> list[str]:
    """What a unit starts, without the options of a user's."""
    (line,) = re.findall(r"^ExecStart=(.+)$", UNITS[name].read_text(encoding="utf-8"), re.M)
    program, *words = shlex.split(line.replace("$OPTIONS", ""))
    assert Path(program).name == "waterclock"
    return words


def line_of(word: str) -> str:
    (found,) = re.findall(rf"^{word} (.+)$", CONTAINERFILE.replace("\\\n", " "), re.M)
    return found


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return str(door.getsockname()[1])


@pytest.fixture
def elsewhere(tmp_path: Path) -> Callable[[list[str]], list[str]]:
    """A command with free ports in place of those that it names, and a folder of the test's in place of /var/lib."""
    ports = {port: free_port() for port in ("9092", "9400", "9401")}

    def moved(words: list[str]) -> list[str]:
        found = [re.sub(r"\b(9092|940[01])\b", lambda port: ports[port[1]], word) for word in words]
        return [word.replace(HOME, str(tmp_path)) for word in found]

    return moved


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def started(words: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "waterclock.cli", *words]
        running.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True))
        assert running[-1].stdout is not None
        assert " ready" in running[-1].stdout.readline()
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", "waterclock.cli", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)


def end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    return process.returncode


def test_what_compose_starts_delivers_a_message_and_is_well_until_it_ends(
    elsewhere: Callable[[list[str]], list[str]], start: Start
) -> None:
    broker, relay = service("broker"), service("relay")
    port = ["--port", *elsewhere(["9092"])]
    processes = {
        "broker": start([*elsewhere(broker["command"]), *port]),
        "relay": start(elsewhere(relay["command"])),
    }
    checks = {"broker": elsewhere(broker["test"][1:]), "relay": elsewhere(relay["test"][1:])}
    assert [run(check).returncode for check in checks.values()] == [0, 0]
    where = ["--bootstrap", *elsewhere(["localhost:9092"])]
    assert run(["relay", "send", "reminders", "hello", "--delay", "1s", *where]).returncode == 0
    assert "hello" in run(["relay", "read", "reminders", "--most", "1", *where]).stdout
    for name in ("relay", "broker"):
        assert end(processes[name]) == 0
        assert run(checks[name]).returncode == 1


def test_the_image_alone_is_the_broker_of_compose() -> None:
    broker = service("broker")
    assert json.loads(line_of("CMD")) == broker["command"]
    assert json.loads(line_of("HEALTHCHECK").partition(" CMD ")[2]) == broker["test"][1:]
    assert json.loads(line_of("ENTRYPOINT")) == ["waterclock"]
    assert line_of("USER").isdecimal()
    assert line_of("USER") != "0"


@pytest.mark.parametrize("name", UNITS)
def test_the_options_that_the_files_name_are_there(name: str) -> None:
    for words in (service(name)["command"], unit(name)):
        assert cli._parser().parse_args(words).metrics in (9400, 9401)


def test_what_the_units_start_works_together(elsewhere: Callable[[list[str]], list[str]], start: Start) -> None:
    processes = [start([*elsewhere(unit("broker")), "--port", *elsewhere(["9092"])]), start(elsewhere(unit("relay")))]
    assert [end(process) for process in reversed(processes)] == [0, 0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    text = UNITS[name].read_text(encoding="utf-8")
    (tmp_path / UNITS[name].name).write_text(text.replace("/opt/waterclock/bin/waterclock", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNITS[name].name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# What a release's wheels are tested by


def test_a_wheel_for_a_release_is_refused_where_a_module_was_not_compiled(tmp_path: Path) -> None:
    """The command that says so ended with 1 for a good wheel too: `exit("")` is a failure."""
    first, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["test-command"]
    program, *words = shlex.split(first)
    assert program == "python"
    package = tmp_path / "waterclock"
    (package / "wheel").mkdir(parents=True)
    for path in (*(ROOT / "src/waterclock").iterdir(), *(ROOT / "src/waterclock/wheel").glob("*.py")):
        if path.name != "wheel":
            (package / path.relative_to(ROOT / "src/waterclock")).symlink_to(path)
    (package / "wheel" / "_objects.py").write_text("raise ImportError('not for this Python')")
    ends = [
        subprocess.run(
            [sys.executable, *words], env={**os.environ, **more}, capture_output=True, check=False
        ).returncode
        for more in ({}, {"PYTHONPATH": str(tmp_path)})
    ]
    assert ends == [0 if wheel.COMPILED else 1, 1]


# What names the version


def test_the_citation_names_the_version() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_newest_changes_are_of_the_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[?([\d.]+)", changes, re.M)[0] == __version__


def test_the_versions_that_get_fixes_begin_with_this_one() -> None:
    minor = ".".join(__version__.split(".")[:2])
    assert f"| {minor}.x | yes |" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")

"""What a user installs, outside of the clone: what a wheel has, all of the tree that it is made of and nothing else;
environments that have nothing but waterclock and pytest; and everything that README shows, with extras.
"""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from zipfile import ZipFile

import pytest

from tests.installed.environments import FOLDER, NO_COMPILER, ROOT, Environment, built_of, kinds, made

README = (ROOT / "README.md").read_text(encoding="utf-8")
MINUTE = "2026-03-01T10:{:02}:00Z"
EVENTS = [
    {"order": "A", "n": 2, "at": MINUTE.format(5), "what": "packed"},
    {"order": "A", "n": 1, "at": MINUTE.format(0), "what": "created"},
]
FIXTURES = """
def test_a_topic(kafka_broker, kafka_topic):
    assert kafka_broker.statistics().topics >= 1

def test_one_of_its_own(kafka_broker_factory):
    assert ":" in kafka_broker_factory().bootstrap
"""
Start = Callable[..., str]


@pytest.fixture
def start(whole: Environment, tmp_path: Path) -> Iterator[Start]:
    """Starts a command that goes on, and gives its first line; all are ended behind the test."""
    running: list[Popen[str]] = []

    def started(*command: str) -> str:
        running.append(whole.start("waterclock", *command, cwd=tmp_path))
        assert running[-1].stdout is not None
        return running[-1].stdout.readline()

    yield started
    for process in running:
        process.terminate()
        process.communicate(timeout=60)


def test_readmes_pipeline_goes_from_files_to_sqlite_and_writes_nothing_into_the_package(
    whole: Environment, tmp_path: Path
) -> None:
    before = whole.files()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS))
    (pipeline,) = re.findall(r"```toml[^\n]*\n(source = .+?)```", README, re.S)
    (tmp_path / "orders.toml").write_text(pipeline)
    done = whole.run("waterclock", "run", "orders.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        kinds = [kind for (kind,) in database.execute("SELECT kind FROM results ORDER BY due")]
    assert kinds == ["event", "event", "expired"]
    assert whole.files() == before


def test_the_doctor_finds_every_door_at_work_that_was_installed(whole: Environment, tmp_path: Path) -> None:
    doors = ("timers", "broker", "relay", "spark", "kafka")
    done = whole.run("waterclock", "doctor", *doors, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [line for line in done.stdout.splitlines() if line.endswith(" works")] == [
        f"{door:12} works" for door in doors
    ]


def test_a_delayed_message_is_delivered(whole: Environment, start: Start, tmp_path: Path) -> None:
    ready = start("relay", "--embedded", "out/relay", "--port", "0")
    (servers,) = re.findall(r"ready: requests go to \w+ on ([\d.:]+),", ready)
    where = ("--bootstrap", servers)
    sent = whole.run("waterclock", "relay", "send", "reminders", "hello", "--delay", "1s", *where, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    read = whole.run("waterclock", "relay", "read", "reminders", "--most", "1", *where, cwd=tmp_path)
    assert (read.returncode, "hello" in read.stdout) == (0, True), read.stderr


def test_a_broker_starts(start: Start) -> None:
    assert re.match(
        r"waterclock broker ready on 127\.0\.0\.1:\d+, data in data$", start("broker", "--data", "data", "--port", "0")
    )


def test_readmes_test_with_a_kafka_in_it_passes(whole: Environment, tmp_path: Path) -> None:
    (sample,) = re.findall(r"```python[^\n]*\n(from confluent_kafka .+?)```", README, re.S)
    (tmp_path / "test_orders.py").write_text(sample)
    done = whole.run("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_has_the_fixtures(whole: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FIXTURES)
    done = whole.run("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "2 passed" in done.stdout, done.stdout


def test_a_lesson_runs(whole: Environment, tmp_path: Path) -> None:
    done = whole.run("waterclock", "demo", "order", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_a_benchmark_runs(whole: Environment, tmp_path: Path) -> None:
    command = ("bench", "wheel", "--sizes", "50", "--rounds", "1", "--out", "figures")
    done = whole.run("waterclock", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figures" / "wheel.json").exists()


HELP = """
import argparse, contextlib, io, sys, waterclock
from waterclock import cli

def commands(parser, words=()):
    yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, (*words, name))

for words in commands(cli._parser()):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    assert shown.getvalue().startswith("usage: " + " ".join(["waterclock", *words])), (words, shown.getvalue())
    print(*words)
print(waterclock.__file__)
"""


def test_the_version_is_the_wheels(environment: Environment, tmp_path: Path) -> None:
    done = environment.run("waterclock", "--version", cwd=tmp_path)
    name, version, *_ = environment.wheel.name.split("-")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} {version}\n", "")


def test_every_command_shows_its_help(environment: Environment, tmp_path: Path) -> None:
    done = environment.run("python", "-c", HELP, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *shown, home = done.stdout.splitlines()
    assert home.startswith(str(environment.folder))
    assert {"run", "broker", "cdc", "relay send", "state rescale", "demo", "trace", "doctor", "bench"} <= set(shown)


def test_without_a_compiler_the_plain_wheel_is_there_and_says_so(environment: Environment, tmp_path: Path) -> None:
    script = "from waterclock import TimingWheel, wheel; print(wheel.COMPILED)"
    done = environment.run("python", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{environment.kind.compiler}\n")
    assert ("the compiled timing wheel is missing" in done.stderr) != environment.kind.compiler


def test_the_doctor_finds_timers_at_work_and_names_what_is_not_installed(bare: Environment, tmp_path: Path) -> None:
    done = bare.run("waterclock", "doctor", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    states = {one["door"]: one["state"] for one in said["doors"]}
    assert states == {**dict.fromkeys(states, "not installed"), "timers": "works"}
    compiled = next(one for one in said["facts"] if one["what"] == "compiled")
    assert compiled["seen"].startswith("all 12 modules" if bare.kind.compiler else "0 of 12 modules")
    assert (compiled["remedy"] == "") is bare.kind.compiler


def test_readmes_first_sample_gives_what_stands_there(environment: Environment, tmp_path: Path) -> None:
    (sample,) = re.findall(r"```python\n(import asyncio\n.+?)```", README, re.S)
    (tmp_path / "sample.py").write_text(sample)
    done = environment.run("python", "sample.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "a tenth of a second\ncancelled: True\n")


def test_trace_prints_what_stands_in_readme(environment: Environment, tmp_path: Path) -> None:
    ((command, shown),) = re.findall(r"^\$ (waterclock trace [^\n]+)\n\.\.\.\n(.+?)\.\.\.\n```", README, re.M | re.S)
    done = environment.run(*command.split(), cwd=tmp_path)
    assert shown in done.stdout


@pytest.mark.parametrize("command", ["demo order", "bench timers"])
def test_demos_that_are_not_there_are_had_by_one_sentence(bare: Environment, tmp_path: Path, command: str) -> None:
    done = bare.run("waterclock", *command.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "pip install ./demos in a clone of waterclock" in done.stderr
    assert (ROOT / "demos" / "pyproject.toml").exists()


def test_a_users_pytest_is_not_disturbed(bare: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
import sys

def test_nothing_is_imported_for_it():
    assert not {"asyncio", "waterclock.testing", "waterclock.timer"} & set(sys.modules)

def test_a_loop(manual_loop):
    import asyncio
    manual_loop.run_until_complete(asyncio.sleep(86_400))
    assert manual_loop.time() >= 86_400

def test_a_broker(kafka_topic):
    pass
""")
    plain = "ignore:the compiled timing wheel is missing:RuntimeWarning"
    done = bare.run("pytest", "-q", "-W", "error", "-W", plain, "-p", "no:cacheprovider", cwd=tmp_path)
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "is missing, and a broker needs it: pip install 'kio>=" in done.stdout


def test_what_an_error_advises_is_what_was_missing(tmp_path: Path) -> None:
    """The command is run as it was printed, but for the pip: the environment has none."""
    kind = next((kind for kind in kinds() if not kind.whole and kind.compiler), None)
    if kind is None:
        pytest.skip("one Python: both of its environments are whole")
    bare = made(kind, "advised")
    lacking = bare.run("waterclock", "broker", "--settings", cwd=tmp_path)
    assert lacking.returncode == 1
    (advice,) = re.findall(r"pip install (.+)$", lacking.stderr, re.M)
    bare.install(*shlex.split(advice))
    done = bare.run("waterclock", "broker", "--settings", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


BUILT_FROM = (".pyx", ".pxd", ".pxi", ".h")  # a source distribution has them, and no wheel
COMPILED = re.compile(r"(.+)\.cpython-\d+-[\w-]+\.so")


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def in_wheel(wheel: Path) -> set[str]:
    """Its files but for its metadata."""
    return {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_a_wheel_has_every_file_that_works_and_no_other(environment: Environment) -> None:
    wanted = {name.removeprefix("src/") for name in tracked("src/waterclock") if not name.endswith(BUILT_FROM)}
    assert {name for name in in_wheel(environment.wheel) if not COMPILED.fullmatch(name)} == wanted


@pytest.mark.parametrize("python", sorted({kind.python for kind in kinds()}))
def test_a_python_that_is_compiled_for_has_its_headers(python: str) -> None:
    """Debian: apt install python3-dev."""
    where = "import sysconfig; print(sysconfig.get_path('include'))"
    include = subprocess.run([python, "-c", where], cwd="/", capture_output=True, text=True, check=True).stdout.strip()
    assert (Path(include) / "Python.h").exists()


def test_a_wheel_has_every_compiled_module_or_none(environment: Environment) -> None:
    names = {found[1] for name in in_wheel(environment.wheel) if (found := COMPILED.fullmatch(name))}
    sources = set(re.findall(r'compiled\("([\w.]+)"', (ROOT / "setup.py").read_text()))
    wanted = {f"waterclock/{name.replace('.', '/')}" for name in sources}
    assert names == (wanted if environment.kind.compiler else set())
    assert len(wanted) >= 12


def test_the_demos_have_every_file_of_theirs_and_no_other(whole: Environment) -> None:
    results = "bench/results/"
    wanted = {f"waterclock/{name}" for name in tracked("examples", "bench") if not name.startswith(results)}
    home = next(whole.folder.glob("lib/python*/site-packages"))
    there = [file for part in ("examples", "bench") for file in (home / "waterclock" / part).rglob("*")]
    assert {str(file.relative_to(home)) for file in there if file.is_file() and file.suffix != ".pyc"} == wanted


def test_nothing_is_needed_without_an_extra(environment: Environment) -> None:
    with ZipFile(environment.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        needed = re.findall(r"^Requires-Dist: (.+)$", wheel.read(metadata).decode(), re.M)
    assert len(needed) > 10
    assert [line for line in needed if "; extra ==" not in line] == []


def test_a_wheel_is_small(environment: Environment) -> None:
    """Today 1.3 MB plain and 1.9 MB compiled, 5.4 MB unpacked: neither demos nor what a debugger needs. Below these bounds
    a wheel is not worth splitting (docs/dependencies.md)."""
    assert environment.wheel.stat().st_size < 2_200_000
    with ZipFile(environment.wheel) as wheel:
        assert sum(file.file_size for file in wheel.infolist()) < 5_500_000


def test_what_an_earlier_build_left_is_in_no_wheel(tmp_path: Path) -> None:
    """Modules of two rooms that have other names today were 2 MB of a wheel that was built in a clone."""
    kind = kinds()[1]
    (sdist,) = FOLDER.glob("sdist/waterclock-*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    (tree,) = tmp_path.iterdir()
    ask = "import sys, sysconfig; print(f'lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}')"
    folder = subprocess.run(
        [kind.python, "-c", ask], cwd="/", capture_output=True, text=True, check=True
    ).stdout.strip()
    left = tree / "build" / folder / "waterclock" / "gone"
    left.mkdir(parents=True)
    for name in ("_engine.so", "engine.py"):
        (left / name).write_text("of an earlier build")
    assert {name for name in in_wheel(built_of(kind, tree, NO_COMPILER)) if "gone" in name} == set()


def test_the_oldest_and_the_newest_python_are_tried_whole() -> None:
    tried = [(kind.version, kind.compiler) for kind in kinds() if kind.whole]
    assert sorted(tried) == sorted([(kinds()[0].version, True), (kinds()[-1].version, False)])

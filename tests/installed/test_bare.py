"""The program and the library in environments that have nothing but waterclock and pytest, outside of the clone."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.installed.environments import ROOT, Environment, kinds, made

README = (ROOT / "README.md").read_text(encoding="utf-8")
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
    assert compiled["seen"].startswith("all 9 modules" if bare.kind.compiler else "0 of 9 modules")
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
    bare = made(next(kind for kind in kinds() if not kind.whole and kind.compiler), "advised")
    lacking = bare.run("waterclock", "broker", "--settings", cwd=tmp_path)
    assert lacking.returncode == 1
    (advice,) = re.findall(r"pip install (.+)$", lacking.stderr, re.M)
    bare.install(*shlex.split(advice))
    done = bare.run("waterclock", "broker", "--settings", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

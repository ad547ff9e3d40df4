"""Calls as a user writes them: what a type checker says to one that does not fit its callback, as of asyncio's
`call_later`; and the recipes of docs/timers.md for pytest-asyncio and anyio, each run as it stands there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waterclock.timer.adding import Adder
from waterclock.timer.drive import Drive

ROOT = Path(__file__).parents[2]

# a line that ends in "refused" is one that a type checker has to refuse, and no other
SAMPLE = """
import asyncio
from functools import partial

from waterclock import AsyncTimer, Timer, TimingWheel

def greet(name: str, times: int) -> None: ...
def default(name: str, times: int = 1) -> None: ...
def nothing() -> int: return 0
async def work(name: str = "") -> int: return 0
class Worker:
    async def __call__(self) -> None: ...
worker = Worker()
class Session:
    def end(self, reason: str) -> None: ...

def use(timer: Timer | AsyncTimer, wheel: TimingWheel, session: Session, loop: asyncio.AbstractEventLoop,
        thread: Timer, aside: AsyncTimer) -> None:
    loop.call_later(1, greet, "x", 5, 6)  # refused
    timer.call_later(1, greet, "x", 5, 6)  # refused
    timer.call_later(1, greet, "x")  # refused
    timer.call_later(1, greet, 5, "x")  # refused
    timer.call_later(1, nothing, 1)  # refused
    timer.call_later(1, session.end)  # refused
    timer.call_later("1", nothing)  # refused
    timer.call_later(1, 5)  # refused
    timer.call_at(1, greet, "x", "y")  # refused
    timer.every(1, greet, "x")  # refused
    timer.every(1, nothing, missed="sometimes")  # refused
    wheel.add(1, session.end)  # refused
    wheel.add(1, session.end, 5)  # refused
    wheel.add_at(1, greet, "x", 5)  # refused
    thread.call_later(1, work)  # refused
    thread.call_later(1, work, "x")  # refused
    thread.call_at(1, work)  # refused
    thread.every(1, work)  # refused
    thread.call_later(1, worker)  # refused
    thread.call_later(1, lambda: work())  # refused
    thread.call_later(1, partial(work, "x"))  # refused
    thread.call_later(1, nothing).cancel()
    thread.every(1, greet, "x", 5).cancel()
    thread.call_later(1, lambda: None).cancel()
    aside.call_later(1, work).cancel()
    aside.every(1, work, "x").cancel()
    timer.call_later(1, greet, "x", 5)
    timer.call_later(0.5, nothing)
    timer.call_later(1, default, "x")
    timer.call_later(1, default, "x", 2)
    timer.call_later(1, print, "x", 1, None)
    timer.call_later(1, session.end, "over")
    timer.call_later(1, partial(greet, "x", times=1))
    timer.call_later(1, lambda: greet("x", 1))
    timer.call_at(1, session.end, "over")
    timer.every(1, greet, "x", 5, missed="burst")
    wheel.add(1, nothing)
    wheel.add(1, session.end, "over")
    wheel.add_at(1, print, "x")
    wheel.add(1, list[int]().append, 5)
    handle = timer.call_later(1, nothing)
    handle.reschedule(0.5)
    _: bool = handle.cancel()
"""
REFUSED = {number for number, line in enumerate(SAMPLE.splitlines(), 1) if line.endswith("# refused")}


def test_the_callbacks_arguments_are_part_of_its_type() -> None:
    """The small one: what a type checker goes by is written down."""
    for method in (Adder.call_later, Adder.call_at, Drive.every):
        assert method.__annotations__["fn"] == "Callable[[*Ts], object]"
        assert method.__annotations__["args"] == "*Ts"


@pytest.mark.long(seconds=15)
def test_mypy_refuses_a_call_that_does_not_fit_its_callback(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "sample.py").write_text(SAMPLE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--hide-error-context", "--cache-dir"]
    done = subprocess.run(
        [*command, str(tmp_path / "cache"), "--no-error-summary", "--follow-imports=silent", "sample.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("sample.py") and " error: " in line]
    assert ({int(line.split(":")[1]) for line in errors}, done.stderr) == (REFUSED, ""), done.stdout


DOCS = (ROOT / "docs" / "timers.md").read_text()


def blocks(package: str) -> list[str]:
    """The Python of a recipe: what goes into conftest.py, if anything does, and the test."""
    recipe = DOCS.split(f"With `{package}`")[1].split("With `")[0].split("\n`sockets` and")[0]
    return re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)


@pytest.mark.parametrize("package", ["pytest-asyncio", "anyio"])
def test_a_recipe_of_the_documentation_runs(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package.replace("-", "_"))
    *conftest, test = blocks(package)
    (tmp_path / "conftest.py").write_text("\n".join(conftest))
    (tmp_path / "test_it.py").write_text(test)
    one = "asyncio_default_fixture_loop_scope=function"  # which pytest-asyncio warns without, at its start
    options = ["-o", one] if package == "pytest-asyncio" else ["-p", "no:asyncio"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr

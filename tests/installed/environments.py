"""What a user gets: for each Python of this machine a wheel with a compiler and one without, each in an environment.

The source distributions lie in $WHEELS/sdist; `make test-wheel` makes them of the tracked files alone. Each wheel is built
from one of them, so that it is proven too. Nothing here imports waterclock: it would be the tree's.

Rule 1: the oldest Python's compiled wheel and the newest one's plain wheel are tried whole, with extras and demos. All
        others are tried bare, with pytest beside them.
Rule 2: an environment's commands run in a folder outside of the clone, and know nothing of the clone's environment.
Rule 3: a compiler is there while a wheel is built, and never while one is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(os.environ.get("WHEELS", "build/wheel")).absolute()
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
EXTRAS: Final = "spark,broker,relay"
PATIENCE_S: Final = 600
NO_COMPILER: Final = {"CC": "false", "CXX": "false"}
_OURS: Final = ("PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "CFLAGS", "CXXFLAGS")


class Kind(NamedTuple):
    """A Python, and how its wheel is built."""

    version: str
    python: str
    compiler: bool
    whole: bool

    def __str__(self) -> str:
        return f"{self.version} {'compiled' if self.compiler else 'plain'}{' whole' if self.whole else ''}"


class Environment(NamedTuple):
    """An environment with the wheel of its kind."""

    kind: Kind
    folder: Path
    wheel: Path

    def run(self, *command: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """A program of this environment."""
        return _run(self.folder / "bin" / command[0], *command[1:], cwd=cwd, **options)

    def start(self, *command: str | Path, cwd: Path) -> subprocess.Popen[str]:
        """The same, and it goes on."""
        program = [self.folder / "bin" / command[0], *command[1:]]
        return subprocess.Popen(program, cwd=cwd, env=_environ(), stdout=subprocess.PIPE, text=True)

    def install(self, *what: str | Path) -> None:
        """As on a machine without a compiler: rule 3."""
        _pip(self.folder / "bin" / "python", "install", "--no-compile", *what, **NO_COMPILER)

    def files(self) -> dict[str, int]:
        """What lies in its folder of waterclock, but for what Python keeps there by itself; with when it was written."""
        (home,) = self.folder.glob("lib/python*/site-packages/waterclock")
        files = [file for file in home.rglob("*") if file.is_file() and file.suffix != ".pyc"]
        return {str(file.relative_to(home)): file.stat().st_mtime_ns for file in files}


@cache
def home() -> Path:
    """Where all of this process lies; the tests' conftest removes it."""
    return Path(mkdtemp(prefix="installed-"))


@cache
def kinds() -> list[Kind]:
    """Both wheels of each Python that is there."""
    found = {version: python for version in VERSIONS if (python := _python(version))}
    oldest, newest = next(iter(found)), next(reversed(found))
    return [
        Kind(version, python, compiler, version == (oldest if compiler else newest))
        for version, python in found.items()
        for compiler in (True, False)
    ]


@cache
def made(kind: Kind, name: str = "") -> Environment:
    """The environment of a kind; `name` is for one that a test changes."""
    folder = Path(mkdtemp(prefix="environment-", dir=home()))
    subprocess.run([kind.python, "-m", "venv", "--without-pip", folder], check=True, env=_environ())
    environment = Environment(kind, folder, wheel(kind))
    if kind.whole:
        demos = _built(kind, "waterclock_demos", NO_COMPILER)
        environment.install(f"{environment.wheel}[{EXTRAS}]", demos, "pytest")
    else:
        environment.install(environment.wheel, "pytest")
    return environment


@cache
def wheel(kind: Kind) -> Path:
    return _built(kind, "waterclock", {} if kind.compiler else NO_COMPILER)


def _built(kind: Kind, name: str, more: dict[str, str]) -> Path:
    """The wheel of a source distribution, built in an environment of its own."""
    (sdist,) = FOLDER.glob(f"sdist/{name}-*.tar.gz")
    return built_of(kind, sdist, more)


def built_of(kind: Kind, source: Path, more: dict[str, str]) -> Path:
    """The wheel of a source distribution, or of a folder that one was unpacked into."""
    into = Path(mkdtemp(prefix="wheel-", dir=home()))
    # what it was built into once before is not taken again
    _pip(
        kind.python,
        "wheel",
        "--no-deps",
        "--no-binary",
        "waterclock,waterclock-demos",
        "--wheel-dir",
        into,
        source,
        **more,
    )
    (built,) = into.glob("*.whl")
    return built


def _pip(python: str | Path, *command: str | Path, **more: str) -> None:
    """This environment's pip, which is newer than what comes with a Python, at work for another one."""
    pinned = ROOT / "constraints.txt"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    done = _run(*pip, *command, "--constraint", pinned, cwd=FOLDER, PIP_BUILD_CONSTRAINT=str(pinned), **more)
    assert done.returncode == 0, done.stdout + done.stderr


def _python(version: str) -> str | None:
    """One with headers goes before one without: that one cannot be compiled for."""
    places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    there = (
        "import sysconfig, venv, pathlib; print((pathlib.Path(sysconfig.get_path('include')) / 'Python.h').exists())"
    )
    said = {str(place): _run(place, "-c", there, cwd=Path("/")).stdout.strip() for place in places if place}
    return next((place for wanted in ("True", "False") for place, what in said.items() if what == wanted), None)


def _run(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**_environ(), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OURS and not name.startswith("COV_")}

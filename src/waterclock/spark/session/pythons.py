"""Which Python Spark starts on this machine, and how: through a small script, which has worker.py run first.

Spark takes a program's path and no arguments for it. So a script is made that knows them, for this process alone.

Rule 1: a Python that the user named (PYSPARK_PYTHON, "spark.pyspark.python") is the one that is started.
Rule 2: of a cluster's machines nothing is known: there, Spark starts Pythons as it does by itself.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

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

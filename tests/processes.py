"""What counts memory, files or threads has a process of its own: other tests leave theirs in the one that runs them."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.sinks.stores", "tests.sinks.test_replica_kills"])
PATIENCE_S = 60


def alone(deed: Callable[..., Any], *arguments: Any) -> Any:
    """What `deed`, a function of a module, gives back there; what it raises there is raised here."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(deed, *arguments).result()


class Done(NamedTuple):
    """How a process ended, as subprocess says it: minus the signal where one ended it."""

    returncode: int | None
    stdout: str
    stderr: str


def in_a_fork(script: str) -> Done:
    """Run a script where the sinks' modules are imported already: a process that is to be killed costs next to nothing.

    It is forked by a process that does nothing else, so no thread of the tests is half in it. What has not ended in time
    is killed, and its `returncode` is None.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        process = FORKS.Process(target=_run, args=(script, *files))
        process.start()
        process.join(PATIENCE_S)
        ended = process.exitcode
        process.kill()
        process.join()
        return Done(ended, *(file.read_text() if file.exists() else "" for file in files))


def _run(script: str, *files: Path) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    exec(compile(script, "script", "exec"), {"__name__": "__main__"})

"""A client in a process of its own: its figures, and what it cost the server meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from waterclock.bench.broker.process import cpu_s
from waterclock.bench.servers.server import Server
from waterclock.errors import WrongAnswer

WITHIN_S = 300.0
Figures = dict[str, Any]


def asked(server: Server, client: str, *words: object) -> Figures:
    """The last line that the client wrote, and CPU seconds of the server by million messages; or `error`."""
    before = cpu_s(server.pid)
    command = _command(client, server, words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    cpu = cpu_s(server.pid) - before
    try:
        figures: Figures = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": (done.stderr.strip().splitlines() or ["nothing was said"])[-1]}
    return figures if "error" in figures else {**figures, "cpu_s_per_million": cpu / figures["messages"] * 1e6}


@contextmanager
def polling(server: Server, topic: str, polls: int) -> Iterator[None]:
    """So many long polls wait meanwhile; WrongAnswer where one of them was answered with an error."""
    command = _command("long_polls", server, (topic, polls))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            _await_ready(process)
            yield
            if process.poll() is not None:
                raise WrongAnswer(f"the long polls on {topic} ended with exit code {process.returncode}")
        finally:
            process.kill()


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise WrongAnswer("the long polls did not begin")


def _command(client: str, server: Server, words: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-P", "-m", f"waterclock.bench.broker.{client}", server.bootstrap, *map(str, words)]

"""A sorted set of Redis with a popper by hand: what many write themselves.

Rule 1: its append-only file is on. `each second` is flushed as Redis does it by default: a crash of the machine loses a
        second of what was acknowledged. `always` is flushed before a command is answered, as the relay's log is.
Rule 2: the popper takes a message out before anybody has done anything with it; should it die then, the message is lost.
        Who cannot bear that needs a second set and somebody who looks after it: that is dearer, and not measured.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from waterclock.bench.relay.figures import Figures
from waterclock.bench.relay.keeper import NotMeasured, bytes_in, resident_of
from waterclock.bench.relay.taking import Taking, taking
from waterclock.bench.relay.ways import PAYLOADS, PENDING, named, now_us, redis_at
from waterclock.bench.servers.server import Process
from waterclock.errors import WrongAnswer

PIPELINE: Final = 1_000


class SortedSet:
    """A keeper: a Redis server."""

    way: Final = "redis"
    most: Final = None

    def __init__(self, name: str, flushed: str) -> None:
        self.name, self._flushed = name, flushed

    def __enter__(self) -> SortedSet:
        program = shutil.which("redis-server")
        if program is None or find_spec("redis") is None:
            raise NotMeasured("needs Redis and its client: apt install redis-server, pip install redis")
        self._folder = Path(tempfile.mkdtemp(prefix="waterclock-redis-", dir="/tmp"))  # short: the socket's path
        self.address = str(self._folder / "s")
        place = ["--port", "0", "--unixsocket", self.address, "--dir", str(self._folder)]
        kept = ["--save", "", "--appendonly", "yes", "--appendfsync", self._flushed]
        self._command = [program, *place, *kept]
        try:
            self._launch()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def _launch(self) -> None:
        self._process = Process(
            self._command, self._folder / "log", lambda written: "eady to accept connections" in written
        )
        self._redis: Any = redis_at(self.address)

    def __exit__(self, *_: object) -> None:
        self._process.end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def version(self) -> str:
        return f"Redis {self._redis.info('server')['redis_version']}"

    def target(self) -> str:
        return "-"

    def catch_up_s(self, pending: int) -> float | None:
        return None

    def until_kept(self, pending: int) -> None:
        if (kept := self._redis.zcard(PENDING)) < pending:
            raise WrongAnswer(f"{self.name} keeps {kept:,} messages of {pending:,}")

    def taking(self, target: str, count: int) -> AbstractContextManager[Taking]:
        return taking(self.way, self.address, target, count)

    def processes(self) -> dict[str, list[int]]:
        return {"server": [self._process.pid]}

    def resident_mb(self) -> float:
        return resident_of(self.processes()["server"])

    def bytes_on_disk(self) -> dict[str, int]:
        return {"files": bytes_in(self._folder)}

    def cancel(self, numbers: Sequence[int]) -> float:
        began_s = time.monotonic()
        for first in range(0, len(numbers), PIPELINE):
            some = numbers[first : first + PIPELINE]
            pipeline = self._redis.pipeline(transaction=False)
            for number in some:
                pipeline.zrem(PENDING, named(number))
                pipeline.hdel(PAYLOADS, named(number))
            if sum(pipeline.execute()) != 2 * len(some):
                raise WrongAnswer("a message that was to be cancelled was not there")
        return time.monotonic() - began_s

    def crash(self) -> int:
        killed_us = now_us()
        self._process.end(signal.SIGKILL)
        self._launch()
        return killed_us

    def take_over(self, first: int, rate: int, seconds: float) -> Figures:
        raise NotMeasured("one server; a replica is another set-up")

"""Whoever else is on the machine may connect to the ports that Spark opens: a batch must not wait for that stranger.

The story: Spark's server of states took the first connection for its worker. It came from a Kafka client of another
process, which looked for a broker that had been at that port. Its first bytes were wrong, the server's thread died, and
the worker waited for an answer for ever.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
_LISTENING = "0A"
_JUNK = b"\x00\x00\x00\x2e not what you wait for, whoever you are  "


def ports_of(pid: int) -> set[int]:
    """The TCP ports at which a process listens."""
    inodes: set[str] = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            inodes.add(os.readlink(file))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {
        int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING and f"socket:[{row[9]}]" in inodes
    }


class Stranger(threading.Thread):
    """Connects to every port that a process opens from now on, and sends what nobody there waits for."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._known, self._over = pid, ports_of(pid), threading.Event()

    def run(self) -> None:
        kept = []
        while not self._over.wait(0.001):
            for port in ports_of(self._pid) - self._known:
                with suppress(OSError):
                    kept.append(socket.create_connection(("127.0.0.1", port), 1))
                    kept[-1].sendall(_JUNK)
        for each in kept:
            each.close()

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.long(seconds=10)
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_a_stranger_at_every_port_that_spark_opens_stops_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    assert spark._jvm is not None
    stranger = Stranger(spark._jvm.java.lang.ProcessHandle.current().pid())
    pipeline = configured(load(make_pipeline(tmp_path, orders(60), files=4)))
    stranger.start()
    try:
        summary = pipeline.run(spark)
    finally:
        stranger.stop()
        pipeline.close()
    assert summary.totals["events"] == len(orders(60))

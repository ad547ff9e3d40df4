"""The lease of a checkpoint, whose thread begins when it may: no Spark, and a place that keeps files in a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from waterclock.streaming import owner
from waterclock.streaming.places.hadoop import HadoopPath, ListedFile

FILES: dict[str, bytes] = {}


class Kept(HadoopPath):
    def __truediv__(self, name: str) -> Kept:
        return Kept(f"{self.uri}/{name}")

    def is_dir(self) -> bool:
        return True

    def make_folder(self) -> None: ...

    def entries(self) -> list[ListedFile]:
        return [ListedFile(uri.rpartition("/")[2], False, 0) for uri in FILES]

    def create_new(self, data: bytes) -> bool:
        self.write_whole(data)
        return True

    def write_whole(self, data: bytes) -> None:
        FILES[self.uri] = data


class Begun:
    """A thread that has been started and has not run yet."""

    waiting: Callable[[], Any]

    def __init__(self, target: Any, args: tuple[Any, ...] = (), **named: Any) -> None:
        Begun.waiting = lambda: target(*args)

    def start(self) -> None: ...
    def join(self, timeout: float) -> None: ...


def test_a_lease_that_is_let_go_before_its_thread_has_run_ends_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    # it asked the lease for its epoch, which had none any more: a traceback of a run that had only been refused
    FILES.clear()
    monkeypatch.setattr(owner, "Thread", Begun)
    lease = owner.Lease(Kept("s3a://bucket/checkpoint"))
    lease.take()
    lease.let_go()
    Begun.waiting()
    assert lease.epoch is None

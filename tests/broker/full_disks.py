"""Disks that are full, for tests: what a store is asked to keep is refused, and after it there is room again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from waterclock.broker import Broker

PATIENCE_S = 20.0


@contextmanager
def full_disk(broker: Broker) -> Iterator[None]:
    """Within, every commit of the broker's store is refused."""
    store = broker.inside.store
    broker.call(lambda: setattr(store, "commit_group", lambda group: False))
    yield
    broker.call(lambda: delattr(store, "commit_group"))


@contextmanager
def slow_disk(broker: Broker, outcome: bool = True) -> Iterator[threading.Event]:
    """Within, commits wait: until the event that is given is set, and at the end in any case. `outcome`: whether the
    disk then takes them."""
    store, go_on = broker.inside.store, threading.Event()
    real: Any = type(store).commit_group

    def commit(group: Any) -> bool:
        go_on.wait(PATIENCE_S)
        return outcome and bool(real(store, group))

    broker.call(lambda: setattr(store, "commit_group", commit))
    try:
        yield go_on
    finally:
        go_on.set()
        broker.call(lambda: delattr(store, "commit_group"))


def settle(broker: Broker) -> None:
    """All that the store was given up to now is durable or refused, and told."""
    answer = threading.Event()
    broker.call(lambda: broker.inside.store.commit((), lambda done: answer.set()))
    assert answer.wait(PATIENCE_S)

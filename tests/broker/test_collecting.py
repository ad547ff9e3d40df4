"""The collector of a broker's process: what it does not look at again must be freed without it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.processes import alone
from waterclock.broker import Broker


def left_over() -> int:
    """Connections that are still there when their clients have gone, with a collector that never looks."""
    from waterclock.broker.collecting import pause_little

    found: list[Any] = []
    with Broker() as broker:
        broker.create_topic("t")
        pause_little()
        gc.disable()
        for _ in range(20):
            with RawClient(broker.bootstrap) as client:
                client.produce("t", b"v")
                client.ask("Metadata", 4, topics=None, allow_auto_topic_creation=False)
                found += broker.call(lambda: [weakref.ref(one) for one in broker.inside.listener.connections])
        with RawClient(broker.bootstrap) as client:
            client.produce("t", b"v")
            broker.call(lambda: None)
        return len({id(one()) for one in found if one() is not None})


def test_connections_and_requests_leave_no_circles() -> None:
    assert alone(left_over) <= 1  # the last may be closing


def looked_at() -> int:
    """Of 100,000 objects that are kept, how many a full collection looks at."""
    from waterclock.broker.collecting import pause_little

    pause_little()
    kept = [[number] for number in range(100_000)]
    gc.collect()
    return len(gc.get_objects()) * len(kept) // 100_000


def test_what_has_survived_a_full_collection_is_not_looked_at_again() -> None:
    assert alone(looked_at) < 10_000

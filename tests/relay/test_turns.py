"""Turns: what one asks of Kafka, and how those of several partitions go on side by side."""

from __future__ import annotations

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.logs import Logs


def test_a_turn_that_puts_nothing_aside_asks_nothing_of_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions to Kafka for each turn were a fifth of what it took."""
    relay = world.started()
    world.send("a", in_ms=900)
    step_quietly(relay)
    asked: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(Logs, "bounds", lambda self, topic, partition: asked.append(partition) or (0, 0))
        world.advance_ms(900)
        step_until(lambda: relay._counts.delivered, relay)
    assert world.values() == ["a"]
    assert not asked

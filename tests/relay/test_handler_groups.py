"""Handlers and their groups: a group of two topics, and where a producer of one looks for its coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.relay.test_handlers import Failing, deliver, handle, own
from tests.relay.world import World, step_until
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.handlers.handler import Handler

__all__ = ["own"]


def test_what_is_to_be_tried_again_by_another_function_of_the_group_is_put_aside_and_said(
    world: World, own: Callable[..., Handler], caplog: pytest.LogCaptureFixture
) -> None:
    """Two programs had given one group to the handlers of two topics: a message that the one could not handle came to
    the other, which took it for one of its own."""
    relay, seen = world.started(), Failing()
    handler = own(Failing(ValueError("first"), ValueError("second")))
    world.send("bad", in_ms=0, key=b"k")
    deliver(world, relay, 0)
    handle(handler)
    handler.close()
    deliver(world, relay, 120_000)
    other = own(seen, topic=f"{world.topic}.two")
    world._producer.produce(f"{world.topic}.two", "good")
    step_until(lambda: other.step(0.05) < 0 or (seen.seen and world.seen(f"{world.topic}.group.dead")))
    assert [one.text for one in seen.seen] == ["good"]
    (letter,) = world.seen(f"{world.topic}.group.dead")
    told = dict(letter.headers)
    assert (letter.key, letter.value, told["retry-attempts"]) == (b"k", b"bad", b"1")
    assert told["dead-reason"].decode() == (
        f"OfAnother: it is for the handler of {world.target}, and came to that of {world.topic}.two: "
        "give each a group= of its own"
    )
    assert "is put aside: OfAnother: it is for the handler of" in caplog.text


def test_it_knows_its_topic_when_it_looks_for_the_coordinator(
    world: World, own: Callable[..., Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a topic's name librdkafka waits for half a second in one of five cases."""
    fenced = list[str | None]()
    monkeypatch.setattr(TransactionalProducer, "fence", lambda self, topic=None: fenced.append(topic))
    own(print)._open_producer()
    assert fenced == [world.target]

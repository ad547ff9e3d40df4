"""A relay that may have missed what came, or that is told of another of its name: it looks again before it delivers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message

from tests.relay.test_take_over import End
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.relay.relay import Relay


def kept_waiting(world: World, relay: Relay) -> None:
    world.advance_ms(1_500)


def cut_off(world: World, relay: Relay) -> None:
    relay._member.on_error(KafkaError(KafkaError._TRANSPORT))
    world.advance_ms(900)


@pytest.mark.parametrize("befalls", [kept_waiting, cut_off])
def test_what_came_meanwhile_and_is_due_earlier_goes_first(
    befalls: Callable[[World, Relay], None], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    world.send("late", in_ms=800)
    step_quietly(relay)
    world.send("early", in_ms=500)
    with monkeypatch.context() as patch:
        patch.setattr(relay, "_read", lambda wait_s: [])
        befalls(world, relay)
        for _ in range(3):
            relay.step(0)
        assert world.values() == []
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["early", "late"]


def test_a_word_that_the_end_was_reached_is_not_believed_of_another_reading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka may say it of the one before: what stands in between would be overtaken."""
    relay = world.started()
    world.send("late", in_ms=1_000)
    step_quietly(relay)
    relay.owners[0].checkpoint()
    world.crash(relay)
    world.send("early", in_ms=500)
    world.advance_ms(1_500)
    relay = world.relay()
    step_until(lambda: relay.owners, relay)
    with monkeypatch.context() as patch:
        patch.setattr(relay, "_read", lambda wait_s: [End()])
        relay.step(0)
        relay.step(0)
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["early", "late"]


class Fenced:
    """What the client says when the group has its name for another's."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.FENCED_INSTANCE_ID)


def fenced_once(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    real, said = relay._read, [Fenced()]

    def read(wait_s: float) -> list[Message]:
        return [said.pop(), *real(0)] if said else real(wait_s)  # type: ignore[list-item]

    monkeypatch.setattr(relay, "_read", read)


def test_one_that_is_told_of_another_of_its_name_joins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two requests to join, the first one may be delayed, and come last: it is the relay itself that is meant."""
    relay = world.started()
    world.send("a", in_ms=1_000)
    step_quietly(relay)
    fenced_once(relay, monkeypatch)
    relay.step(0)
    assert not relay.owners
    world.advance_ms(1_000)
    step_until(world.values, relay)
    step_quietly(relay)
    assert world.values() == ["a"]


def test_one_that_is_told_so_again_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = world.started()
    fenced_once(relay, monkeypatch)
    relay.step(0)
    step_until(lambda: relay.owners, relay)
    fenced_once(relay, monkeypatch)
    with pytest.raises(UsageError, match="give each its own"):
        relay.step(0)

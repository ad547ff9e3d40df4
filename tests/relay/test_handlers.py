"""Functions that are called with what is delivered: in order, at least once, tried again, put aside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.relay.handler_steps import Failing, death, deliver, handle, making, requests
from tests.relay.world import World, step_until
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.settings import base_settings
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay import AsyncDelays, Delays, Delivery, RetryAfter
from waterclock.relay.client.async_delays import WasCancelled, _called
from waterclock.relay.handlers.handler import Handler, HandlerOptions
from waterclock.relay.handlers.handlers import HandlerWorker
from waterclock.testing import Broker


@pytest.fixture
def own(world: World) -> Iterator[Callable[..., Handler]]:
    """Makes a handler for the world's target, of a group of the test's own."""
    with making(world, waits=("1 s", "1 min")) as one:
        yield one


def test_it_is_called_with_each_message_in_order_and_once(world: World, own: Callable[..., Handler]) -> None:
    relay, seen = world.started(), Failing()
    due_ms = world.now_ms + 1_000
    world.send("a", "b", key=b"k", trace="x")
    deliver(world, relay, 1_000)
    handler = own(seen)
    handle(handler, 2)
    handler.close()
    assert not own(seen).step(1.0)
    assert [one.text for one in seen.seen] == ["a", "b"]
    first = seen.seen[0]
    assert (first.id, first.topic, first.key, first.due_ms, first.attempt) == (
        f"{world.topic}-0-0", world.target, b"k", due_ms, 1,
    )  # fmt: skip
    assert dict(first.headers)["trace"] == b"x"


def test_one_that_raises_is_tried_again_after_each_wait_and_then_put_aside(
    world: World, own: Callable[..., Handler], caplog: pytest.LogCaptureFixture
) -> None:
    relay, seen = world.started(), Failing(ValueError("first"), None, ValueError("second"), ValueError("third"))
    handler = own(seen)
    world.send("bad", "good", in_ms=0, key=b"k")
    deliver(world, relay, 0)
    handle(handler, 2)
    assert [one.text for one in seen.seen] == ["bad", "good"]  # nobody is held up
    deliver(world, relay, 120_000)
    handle(handler)
    deliver(world, relay, 120_000)
    handle(handler)
    assert [(one.text, one.attempt, one.id) for one in seen.seen[2:]] == [
        ("bad", attempt, f"{world.topic}-0-0") for attempt in (2, 3)
    ]
    (letter,) = world.seen(f"{world.topic}.group.dead")
    told = dict(letter.headers)
    assert (letter.key, letter.value) == (b"k", b"bad")
    assert (told["retry-attempts"], told["retry-error"], told["dead-reason"]) == (
        b"3", b"ValueError: first", b"ValueError: third",
    )  # fmt: skip
    assert world.values() == ["bad", "good"]  # other groups see it once
    assert "is put aside: ValueError: third" in caplog.text


def test_it_may_say_itself_how_long_to_wait(world: World, own: Callable[..., Handler]) -> None:
    relay, seen = world.started(), Failing(RetryAfter("1 day"))
    handler = own(seen)
    world.send("later", in_ms=0)
    deliver(world, relay, 0)
    handle(handler)
    deliver(world, relay, 3_600_000)
    assert world.values(f"{world.topic}.group.retry") == []
    deliver(world, relay, 86_400_000)
    assert world.values(f"{world.topic}.group.retry") == ["later"]


@pytest.mark.parametrize(
    ("step", "when"),
    [
        pytest.param(step, when, marks=() if step == "commit" else pytest.mark.long(seconds=2))
        for step in ("send", "send_offsets", "commit")
        for when in ("before", "after")
    ],
)
def test_a_death_while_it_is_sent_on_leaves_one_retry(
    step: str, when: str, world: World, own: Callable[..., Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, seen = world.started(), Failing(None, ValueError("first"), ValueError("first"))
    world.send("good", "bad", in_ms=0)
    deliver(world, relay, 0)
    handler = own(seen)
    handle(handler)
    with death(monkeypatch, TransactionalProducer, step, when):
        handle(handler)
    handler.close()  # what is open is thrown away, as Kafka does when time is over
    again = own(seen)
    step_until(lambda: again.step(0.05) or requests(world))
    assert not again.step(0.5)
    assert requests(world) == 1
    assert [one.text for one in seen.seen[:2]] == ["good", "bad"]
    assert {one.text for one in seen.seen[2:]} <= {"bad"}


def test_a_crash_before_its_offset_is_known_calls_it_again_with_the_same_id(
    world: World, own: Callable[..., Handler]
) -> None:
    relay, seen = world.started(), Failing()
    world.send("a", in_ms=0)
    deliver(world, relay, 0)
    handler = own(seen)
    handle(handler)
    handler._next.clear()  # the process is gone
    handler.close()
    handle(own(seen))
    assert [one.id for one in seen.seen] == [f"{world.topic}-0-0"] * 2


def test_two_of_a_group_share_the_partitions_and_what_one_gives_back_is_done(
    world: World, own: Callable[..., Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.relay.handlers.handler.COMMIT_S", 1000.0)
    world.admin.make(topic := f"{world.topic}.two", 4)

    def write(numbers: Iterable[int]) -> None:
        for number in numbers:
            world._producer.produce(topic, str(number), partition=number % 4)
        assert world._producer.flush(10) == 0

    def topics_of(handler: Handler) -> set[str]:
        return {each.topic for each in handler._consumer.assignment()}

    write(range(40))
    one, two = Failing(), Failing()
    first = own(one, topic=topic)
    handle(first, 25)
    second = own(two, topic=topic)
    step_until(lambda: first.step(0.02) + second.step(0.02) == 0 and topic in topics_of(second))
    write(range(40, 44))  # what is given twice comes before these
    last = {str(number) for number in range(40, 44)}
    step_until(
        lambda: last <= {each.text for each in [*one.seen, *two.seen]} or first.step(0.02) + second.step(0.02) < 0
    )
    assert two.seen
    assert sorted(int(each.text) for each in [*one.seen, *two.seen]) == list(range(44))


def test_what_is_lost_is_made_again_and_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.relay.handlers.handlers.RECONNECTING_S", (0.0,))

    def lost(producer: TransactionalProducer) -> None:
        raise ConnectionLost("gone")

    relay, seen = world.started(), Failing(ValueError("once"))
    options = HandlerOptions(world.target, seen, f"{world.topic}.group")
    worker = HandlerWorker(base_settings(world.broker.bootstrap, {}), world.topic, options)
    world.send("bad", in_ms=0)
    deliver(world, relay, 0)
    with monkeypatch.context() as patch, closing(worker):
        patch.setattr(TransactionalProducer, "commit", lost)
        with pytest.raises(ConnectionLost):
            step_until(lambda: worker.step() or seen.seen)
    assert worker.lost(ConnectionLost("gone")) == 0.0
    seen.errors = [ValueError("again")]
    with closing(worker):
        step_until(lambda: worker.step() or requests(world))
    assert requests(world) == 1


def test_what_cannot_be_at_the_start_is_an_error() -> None:
    worker = HandlerWorker({"bootstrap.servers": "h:1"}, "delays", HandlerOptions("t", print, "g"))
    with pytest.raises(ConnectionLost):
        worker.lost(ConnectionLost("nobody"))


def test_a_message_that_is_too_large_to_be_sent_on_is_named_in_its_letter(
    world: World, own: Callable[..., Handler]
) -> None:
    import os

    relay, seen = world.started(), Failing(ValueError("bad"))
    handler = own(seen)
    world.put(os.urandom(20_000), deliver_to=world.target, deliver_at=world.now_ms)
    deliver(world, relay, 0)
    world.alter(world.topic, "max.message.bytes", 5_000)
    handle(handler)
    (letter,) = world.seen(f"{world.topic}.group.dead")
    assert dict(letter.headers)["dead-record"] == f"it stands at {world.target}-0-0".encode()


# Groups


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


# Delays.handler and Delays.run


def test_run_calls_the_handlers_of_several_topics_until_it_is_stopped(world: World) -> None:
    relay, seen = world.started(), list[str]()
    other = f"{world.topic}.other"
    with Delays(world.broker.bootstrap, world.topic) as delays:

        @delays.handler(world.target)
        def one(delivery: Delivery) -> None:
            seen.append(f"one {delivery.text}")

        @delays.handler(other, group=f"{world.topic}.others", waits=["1 s"])
        def two(delivery: Delivery) -> None:
            seen.append(f"two {delivery.text}")

        thread = threading.Thread(target=delays.run)
        thread.start()
        step_until(lambda: other in world_topics(world))
        delays.send(world.target, "a", at=world.now_ms)
        delays.send(other, "b", at=world.now_ms)
        step_until(lambda: len(seen) == 2, relay)
        delays.stop()
        thread.join(30)
        one(Delivery("id", "t", None, b"by hand", [], None, 1))  # it stays a function
    assert not thread.is_alive()
    assert sorted(seen) == ["one a", "one by hand", "two b"]


def world_topics(world: World) -> dict[str, int]:
    return world.admin.topics()


def test_coroutine_functions_are_awaited_and_tried_again_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses after what was lost never began anew with them."""
    relay, seen = world.started(), list[tuple[str, int]]()
    delays = AsyncDelays(world.broker.bootstrap, world.topic)

    @delays.handler(world.target, waits=["1 s"])
    async def one(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        seen.append((delivery.text, delivery.attempt))
        if delivery.attempt == 1:
            raise ValueError("once more")

    (worker,) = delays._handlers.workers()
    monkeypatch.setattr(delays._handlers, "workers", lambda: [worker])
    worker.backoff.failed()
    world.send("a", in_ms=0)
    deliver(world, relay, 0)

    def drive() -> None:
        step_until(lambda: requests(world), relay)
        world.advance_ms(60_000)
        step_until(lambda: len(seen) == 2, relay)

    async def life() -> None:
        task = asyncio.create_task(delays.run())
        await asyncio.to_thread(drive)
        delays.stop()
        await task

    asyncio.run(life())
    assert seen == [("a", 1), ("a", 2)]
    assert worker.backoff.attempts == 0


def test_a_coroutine_function_that_awaits_what_was_cancelled_has_failed_and_ends_nothing(
    world: World, own: Callable[..., Handler]
) -> None:
    """It ended `run`: asyncio raises the same where somebody cancels the task."""

    async def one(delivery: Delivery) -> None:
        inner = asyncio.create_task(asyncio.sleep(9))
        inner.cancel()
        await inner

    world._producer.produce(world.target, b"a")
    handler, taken = own(one), list[Any]()
    step_until(lambda: taken.append(handler.take(0.1)) or taken[-1])
    assert isinstance(asyncio.run(_called(handler, taken[-1])), WasCancelled)


def test_what_ends_one_handler_ends_run_and_is_raised(relay_broker: Broker, world: World) -> None:
    with Delays(relay_broker.bootstrap, world.topic) as delays:
        delays.handler("a b", group="g")(print)
        with pytest.raises(UsageError, match="Kafka does not make the topic a b"):
            delays.run()


def test_a_task_that_is_cancelled_lets_go_of_its_consumer(world: World) -> None:
    delays = AsyncDelays(world.broker.bootstrap, world.topic)

    @delays.handler(world.target)
    async def one(delivery: Delivery) -> None: ...

    async def life() -> None:
        task = asyncio.create_task(delays.run())
        await asyncio.to_thread(step_until, lambda: f"{world.target}.handler.retry" in world_topics(world))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(life())


def test_what_ends_one_coroutine_function_ends_run_and_is_raised(world: World) -> None:
    delays = AsyncDelays(world.broker.bootstrap, world.topic)

    async def one(delivery: Delivery) -> None: ...

    for topic in ("a b", world.target):
        delays.handler(topic, group=f"{world.topic}{len(topic)}")(one)
    with pytest.raises(UsageError, match="Kafka does not make the topic a b"):
        asyncio.run(delays.run())


def test_what_is_no_handler_is_refused_at_once(world: World) -> None:
    async def coroutine(delivery: Delivery) -> None: ...

    with Delays(world.broker.bootstrap, world.topic) as delays:
        with pytest.raises(UsageError, match="There is no handler to run"):
            delays.run()
        with pytest.raises(TypeError, match="AsyncDelays"):
            delays.handler("t")(coroutine)
        delays.handler("t")(print)
        with pytest.raises(ValueError, match="give this one another group="):
            delays.handler("t")
        twice = delays.handler("twice")
        twice(print)
        with pytest.raises(ValueError, match="give this one another group="):
            twice(repr)
        with pytest.raises(ValueError, match="waits must read like"):
            delays.handler("u", waits=["soon"])
    with pytest.raises(TypeError, match="async def"):
        AsyncDelays(world.broker.bootstrap).handler("t")(print)

"""`Delays`: what a program sends, cancels and replaces, and what it is told."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.relay.world import World, step_until
from waterclock.clock import SystemClock
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.settings import base_settings
from waterclock.relay import Answer, AsyncDelays, Delays
from waterclock.relay.handlers.handlers import HandlerWorker
from waterclock.relay.relay import Relay
from waterclock.testing import Broker


@pytest.fixture(scope="module")
def running(relay_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world of three partitions with a relay that runs in a thread, by the machine's clock."""
    with World(relay_broker, tmp_path_factory.mktemp("running"), "running", 3) as made:
        made.clock = SystemClock()  # type: ignore[assignment]
        relay = made.started()
        ended = threading.Event()
        thread = threading.Thread(target=_run, args=(relay, ended))
        thread.start()
        yield made
        ended.set()
        thread.join()


def _run(relay: Relay, ended: threading.Event) -> None:
    while not ended.is_set():
        relay.step(0.05)


@pytest.fixture
def delays(running: World) -> Iterator[Delays]:
    with Delays(running.broker.bootstrap, running.topic, patience_s=10) as made:
        yield made


def came(world: World, value: str) -> bool:
    return value in world.values()


def test_what_is_sent_is_delivered_with_its_key_and_headers(running: World, delays: Delays) -> None:
    receipt = delays.send(running.target, "hello", delay="50 ms", key="k", headers=[("trace", b"x")])
    step_until(lambda: came(running, "hello"))
    (seen,) = [seen for seen in running.seen() if seen.value == b"hello"]
    assert (seen.key, dict(seen.headers)["trace"]) == (b"k", b"x")
    assert (dict(seen.headers)["delayed-from"] or b"").decode() == receipt.origin


def test_a_moment_is_a_datetime_or_milliseconds_and_a_delay_a_text_or_a_timedelta(
    running: World, delays: Delays
) -> None:
    now_ms = running.now_ms
    delays.send(running.target, "at", at=datetime.fromtimestamp((now_ms + 100) / 1000, UTC))
    delays.send(running.target, "ms", at=now_ms + 100)
    delays.send(running.target, "delta", delay=timedelta(milliseconds=100))
    step_until(lambda: {"at", "ms", "delta"} <= set(running.values()))


KEYS = ("some key", "key", "another")  # each lies in another of the three partitions


def test_a_cancel_is_answered_by_id_by_key_and_by_receipt(running: World, delays: Delays) -> None:
    delays.send(running.target, "never 1", delay="1 hour", id="one")
    for number, key in enumerate(KEYS):
        delays.send(running.target, "never 2", delay="1 hour", id=f"two {number}", key=key)
    delays.send(running.target, "never 3", delay="1 hour", id="three", key="some key")
    receipt = delays.send(running.target, "never 4", delay="1 hour", id="four", key="another")
    assert delays.cancel("one") == Answer("one", "cancelled", 1)
    for number, key in enumerate(KEYS):
        assert delays.cancel(f"two {number}", key=key) == Answer(f"two {number}", "cancelled", 1)
    assert delays.cancel("three") == Answer("three", "cancelled", 1)
    assert delays.cancel(receipt) == Answer("four", "cancelled", 1)
    assert delays.cancel("five") == Answer("five", "unknown", 0)


def test_a_cancel_that_comes_too_late_is_told_so(running: World, delays: Delays) -> None:
    delays.send(running.target, "soon", delay="0 s", id="soon")
    step_until(lambda: came(running, "soon"))
    assert delays.cancel("soon") == Answer("soon", "already delivered", 0)


def test_a_replace_takes_the_place_of_what_is_pending(running: World, delays: Delays) -> None:
    receipt = delays.send(running.target, "old 1", delay="1 hour", id="r1", key="k")
    delays.send(running.target, "old 2", delay="1 hour", id="r2")
    assert delays.replace(receipt, running.target, "new 1", delay="0 s", key="k") == Answer("r1", "replaced", 1)
    assert delays.replace("r2", running.target, "new 2", delay="0 s") == Answer("r2", "replaced", 1)
    step_until(lambda: {"new 1", "new 2"} <= set(running.values()))
    assert not {"old 1", "old 2"} & set(running.values())


def test_a_series_is_one_request_by_its_id_and_is_cancelled_by_it(running: World, delays: Delays) -> None:
    cron = {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "id": "daily"}
    receipt = delays.every(running.target, "series", **cron, missed="all", expires="1 hour", headers=[("trace", b"x")])
    delays.every(running.target, "series", **cron)  # the program was started again
    (seen,) = [
        seen for seen in running.seen(running.topic) if receipt.origin.endswith(f"{seen.partition}-{seen.offset}")
    ]
    assert seen.headers == [
        ("deliver-to", running.target.encode()),
        ("delay-cron", b"0 9 * * MON-FRI"),
        ("delay-zone", b"Europe/Berlin"),
        ("delay-missed", b"all"),
        ("delay-ttl", b"3600000"),
        ("delay-id", b"daily"),
        ("delay-action", b"replace"),
        ("trace", b"x"),
    ]
    assert delays.cancel("daily") == Answer("daily", "cancelled", 1)


def test_until_when_it_may_be_delivered_is_a_moment_or_a_time_after_it_is_due(running: World, delays: Delays) -> None:
    until = datetime.fromtimestamp(4_000_000_000, UTC)
    for expires in ("2 s", timedelta(seconds=2), until, 4_000_000_000_000):
        delays.send(running.target, "until", delay="1 hour", id="until", expires=expires)
    delays.replace("until", running.target, "until", delay="1 hour", expires="2 s")
    found = [dict(seen.headers) for seen in running.seen(running.topic) if seen.value == b"until"]
    told = [(each.get("delay-ttl"), each.get("delay-expires")) for each in found]
    assert sorted(map(str, told)) == sorted(map(str, [(b"2000", None)] * 3 + [(None, b"4000000000000")] * 2))


def test_several_threads_may_ask_at_once(running: World, delays: Delays) -> None:
    answers: list[Answer] = []

    def one(number: int) -> None:
        delays.send(running.target, "never", delay="1 hour", id=f"thread {number}")
        answers.append(delays.cancel(f"thread {number}"))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(answer.outcome, answer.count) for answer in answers} == {("cancelled", 1)}


WRONG: list[tuple[str, dict[str, object], str]] = [  # a method, its arguments, what is said of them
    ("send", {}, "give either delay or at"),
    ("send", {"delay": "1 s", "at": 5}, "give either delay or at"),
    ("send", {"delay": "soon"}, "delay must read like"),
    ("send", {"delay": "1 s", "target": "a b"}, "deliver-to must be the name of a topic"),
    ("send", {"delay": "1 s", "id": "x" * 256}, "delay-id must have 1 to 255 bytes"),
    ("send", {"delay": "1 s", "headers": [("delay", b"5")]}, "stands there twice"),
    ("send", {"at": 5, "expires": 4}, "it would expire before it is due"),
    ("every", {"cron": "at nine"}, "delay-cron must be five fields"),
    ("every", {"zone": "Mars"}, "delay-zone must be a time zone"),
    ("every", {"missed": "some"}, "delay-missed must be once, all or skip"),
    ("every", {"id": ""}, "there is no delay-id"),
    ("every", {"expires": "soon"}, "expires must read like"),
    ("replace", {"cron": "0 9 1 1 *", "delay": "1 s"}, "give one of delay, at and cron"),
    ("replace", {"cron": "0 9"}, "must be five fields"),
]
NEEDED = {"send": {}, "every": {"cron": "0 9 * * *", "id": "x"}, "replace": {"which": "x"}}


@pytest.mark.parametrize(("method", "arguments", "said"), WRONG)
def test_a_wrong_argument_is_refused_at_the_call(
    method: str, arguments: dict[str, object], said: str, delays: Delays
) -> None:
    with pytest.raises(ValueError, match=said):
        getattr(delays, method)(**{"target": "t", "value": "v", **NEEDED[method], **arguments})


@pytest.mark.parametrize("which", [None, b"x", 5])
def test_what_names_no_message_is_refused_at_the_call(which: object, delays: Delays) -> None:
    for call in (delays.cancel, lambda one: delays.replace(one, "t", "v", delay="1 s")):
        with pytest.raises(TypeError, match="named by its id, a text, or by the receipt of send, not by"):
            call(which)
    for wrong in ("id", "target"):
        with pytest.raises(TypeError, match=f"{wrong} must be a text, got"):
            delays.send(**{"target": "t", "value": "v", "delay": "1 s", wrong: which})  # type: ignore[arg-type]


def test_a_receipt_without_an_id_cannot_be_cancelled(running: World, delays: Delays) -> None:
    receipt = delays.send(running.target, "x", delay="1 hour")
    with pytest.raises(ValueError, match="has no id"):
        delays.cancel(receipt)


def test_without_the_topic_it_is_said_how_to_have_it_made(relay_broker: Broker) -> None:
    with pytest.raises(EnvironmentMissing, match="waterclock relay --bootstrap"):
        Delays(relay_broker.bootstrap, "nothing-here")


def test_without_a_relay_a_cancel_says_that_nothing_is_known(relay_broker: Broker, tmp_path: Path) -> None:
    with (
        World(relay_broker, tmp_path, "lonely") as world,
        Delays(relay_broker.bootstrap, world.topic, patience_s=0.5) as delays,
        pytest.raises(EnvironmentMissing, match="whether it was done is not known"),
    ):
        delays.cancel("x")


def test_what_strangers_write_beside_the_replies_is_passed_over(running: World, delays: Delays) -> None:
    """A record that was no JSON ended each cancel that was waiting, with its error."""
    assert delays.cancel("begin").outcome == "unknown"  # from here on the replies are read
    producer = Producer(base_settings(running.broker.bootstrap, {}))
    for value in (None, b"", b"rubbish", b"\xff", b"[]", b"1", b"{}", b'{"request": 5}', 9_000 * b"["):
        producer.produce(f"{running.topic}.replies", value, partition=0)
        producer.produce(f"{running.topic}.replies", value, partition=1)
        producer.produce(f"{running.topic}.replies", value, partition=2)
    producer.flush()
    assert {delays.cancel(f"id {number}").outcome for number in range(3)} == {"unknown"}


def test_after_an_answer_that_did_not_come_the_replies_are_looked_for_anew(running: World, delays: Delays) -> None:
    """The topic may have been made again, or have more partitions than were read."""
    delays.cancel("begin")
    delays._replies.unassign()  # nothing is heard of it any more
    delays._patience_s = 0.1
    with pytest.raises(EnvironmentMissing, match="whether it was done is not known"):
        delays.cancel("unheard")
    delays._patience_s = 10.0
    assert delays.cancel("heard").outcome == "unknown"


def test_a_process_that_was_forked_is_told_to_make_its_own(
    running: World, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever: the client's threads had stayed behind."""
    monkeypatch.setattr("waterclock.relay.client.delays.os.getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="was forked since Delays was made"):
        delays.send(running.target, "x", delay="1 s")
    with pytest.raises(RuntimeError, match="was forked since Delays was made"):
        delays.cancel("x")


@pytest.mark.parametrize("settings", [{"no.such.setting": "1"}, {"socket.timeout.ms": "x"}, {"": "x"}])
def test_settings_that_make_no_client_are_a_sentence(settings: dict[str, str], running: World) -> None:
    with pytest.raises(UsageError, match="The Kafka client cannot be made: "):
        Delays(running.broker.bootstrap, running.topic, settings=settings)


def test_a_request_that_is_too_large_is_refused_with_a_remedy_that_works(running: World, delays: Delays) -> None:
    """It was a lost connection, as if to be tried again."""
    value = os.urandom(1_100_000)
    with pytest.raises(
        UsageError, match=rf"refuses the request: .*\(max\.message\.bytes of the topic {running.topic}\)"
    ):
        delays.send(running.target, value, delay="1 hour")
    running.alter(running.topic, "max.message.bytes", 3_000_000)
    assert delays.cancel(delays.send(running.target, value, delay="1 hour", id="large")).outcome == "cancelled"


# asyncio


def test_the_same_is_awaited_in_asyncio(running: World) -> None:
    async def life() -> list[object]:
        async with AsyncDelays(running.broker.bootstrap, running.topic, patience_s=10) as delays:
            receipts = await asyncio.gather(
                *(delays.send(running.target, "never", delay="1 hour", id=f"async {number}") for number in range(5))
            )
            answer = await delays.replace(receipts[1], running.target, "asynchronous", delay="0 s")
            return [
                (await delays.cancel(receipts[0])).outcome,
                (await delays.cancel("async 2")).outcome,
                (await delays.cancel(await delays.every(running.target, "x", cron="0 0 1 1 *", id="async"))).outcome,
                answer.outcome,
            ]

    assert asyncio.run(life()) == ["cancelled", "cancelled", "cancelled", "replaced"]
    step_until(lambda: came(running, "asynchronous"))


def test_what_is_not_opened_says_how_to_open_it() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(AsyncDelays("h:1").cancel("x"))


def test_a_replace_may_recur_and_says_what_it_replaced(running: World, delays: Delays) -> None:
    delays.send(running.target, "never", delay="100 days", id="recurs")
    answer = delays.replace("recurs", running.target, "yearly", cron="0 9 1 1 *", zone="Europe/Berlin", missed="all")
    assert answer == Answer("recurs", "replaced", 1)
    (request,) = [seen for seen in running.seen(running.topic) if seen.value == b"yearly"]
    headers = dict(request.headers)
    assert [headers[name] for name in ("delay-cron", "delay-zone", "delay-missed")] == [
        b"0 9 1 1 *",
        b"Europe/Berlin",
        b"all",
    ]
    assert delays.cancel("recurs") == Answer("recurs", "cancelled", 1)


def test_who_is_stopped_while_kafka_is_away_waits_for_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` returned when the pause before the next attempt was over, after ten seconds at most."""

    def away(worker: HandlerWorker) -> None:
        worker._has_begun = True
        raise ConnectionLost("Kafka went away.")

    async def ended() -> None:
        delays = AsyncDelays("127.0.0.1:1")

        @delays.handler("t")
        async def handle(delivery: object) -> None: ...

        task = asyncio.create_task(delays.run())
        while not paused:
            await asyncio.sleep(0.01)
        delays.stop()
        await asyncio.wait_for(task, 5)

    paused: list[WaterclockError] = []
    monkeypatch.setattr(HandlerWorker, "handler", away)
    monkeypatch.setattr(HandlerWorker, "lost", lambda worker, error: paused.append(error) or 60.0)
    asyncio.run(ended())

"""A user who means no good, and one who makes every mistake: nobody else's messages suffer, and nothing is silent."""

from __future__ import annotations

import json
import os
import re
import shutil
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker import raw_client
from tests.broker.raw_client import RawClient
from tests.conformance import batches
from tests.relay.world import World, step_quietly, step_until
from waterclock import cli
from waterclock.errors import UsageError
from waterclock.kafka.settings import base_settings
from waterclock.relay.owner.log_span import LogSpan
from waterclock.relay.store import rows

AT = "1970-01-01T00:00:02.000Z"


def reasons(world: World) -> list[str]:
    return [(letter["dead-reason"] or b"").decode() for letter in world.letters()]


def goes_on(world: World, *relays: object) -> None:
    """A message of somebody else is delivered."""
    before = len(world.values())
    world.send("good", in_ms=0)
    step_until(lambda: world.advance_ms(50) or len(world.values()) > before, *relays)  # type: ignore[arg-type]


# Records


def with_a_header(*values: bytes) -> bytes:
    """A batch of records with the header 0xFF = "x"."""
    made = batches.batch(*(batches.Record(value, headers=(("~", b"x"),)) for value in values))
    return made.but(records=made.records.replace(b"\x02~\x02x", b"\x02\xff\x02x")).encode()


def test_a_header_whose_name_is_no_text_stops_nobody(world: World) -> None:
    relay = world.started()
    world.send(*map(str, range(50)), in_ms=0, trace="x")  # enough to warm Python up
    step_quietly(relay)
    with RawClient(world.broker.bootstrap) as raw, patch.object(raw_client, "batch", with_a_header):
        assert raw.produce(world.topic, b"a", b"b") == (0, 50)
    goes_on(world, relay)
    assert reasons(world) == ["its headers cannot be read: a name in them is not UTF-8."] * 2
    world.crash(relay)
    step_quietly(world.started(folder=world.folder / "other"))
    assert (len(world.values()), len(world.letters())) == (51, 2)


STRANGE: list[tuple[list[tuple[str, bytes | None]], str]] = [
    ([("deliver-at", b"9223372036854775807")], "must be milliseconds as decimal digits"),
    ([("deliver-at", b"-9223372036854775808")], "must be milliseconds as decimal digits"),
    ([("deliver-at", b"999999999999999999")], "later than the year 6400"),
    ([("delay", b"999999999999999999")], "later than the year 6400"),
    ([("deliver-at", "١٢٣".encode())], "must be milliseconds as decimal digits"),
    ([("deliver-at", b"1_000")], "must be milliseconds as decimal digits"),
    ([("deliver-at", b" 1")], "must be milliseconds as decimal digits"),
    ([("deliver-at", b"1" * 100_000)], "must be milliseconds as decimal digits"),
    ([("deliver-at", None)], "got nothing"),
    ([("deliver-at", b"1"), ("delay-id", None)], "must have 1 to 255 bytes"),
    ([("deliver-at", b"1"), ("delay-action", None)], "must be cancel or replace"),
    ([("deliver-at", b"1"), ("deliver-to", b"x")], "stands there twice"),
]


def test_each_strange_header_is_a_letter_that_says_what_it_got(world: World) -> None:
    relay = world.started()
    for headers, _ in STRANGE:
        world.put_raw(b"v", [("deliver-to", world.target.encode()), *headers])
    goes_on(world, relay)
    wrong = [(hope, told) for (_, hope), told in zip(STRANGE, reasons(world), strict=True) if hope not in told]
    assert wrong == []


def test_a_record_of_nothing_is_a_letter(world: World) -> None:
    relay = world.started()
    world.put_raw(None, None)
    world.put_raw(None, [("", None)] * 1_000)
    goes_on(world, relay)
    assert len(reasons(world)) == 2


def test_the_ends_of_time(world: World) -> None:
    relay = world.started()
    for due_ms in (1, 0, 139_000_000_000_000):
        world.put(str(due_ms).encode(), deliver_to=world.target, deliver_at=due_ms)
    goes_on(world, relay)
    step_quietly(relay)
    assert (world.values(), relay.owners[0].store.pending) == (["0", "1", "good"], 1)


# Many


@pytest.mark.parametrize("count", [1_000, pytest.param(50_000, marks=pytest.mark.long(seconds=8))])
def test_many_messages_of_one_id_and_many_cancels_of_it(count: int, world: World) -> None:
    """Each cancel had looked at each message: a thousand of each held back everybody else's for minutes."""
    relay = world.started()
    headers = [("deliver-to", world.target.encode()), ("deliver-at", b"99999999999999"), ("delay-id", b"same")]
    for _ in range(count):
        world._producer.produce(world.topic, b"", headers=headers)
        world._producer.poll(0)
    world._producer.flush(60)
    step_quietly(relay)
    for _ in range(count // 50):
        world._producer.produce(world.topic, b"", headers=[("delay-id", b"same"), ("delay-action", b"cancel")])
    world._producer.flush(60)
    step_quietly(relay)
    assert world.replies() == [("same", "cancelled", count), *[("same", "cancelled", 0)] * (count // 50 - 1)]


def test_an_id_is_looked_up_once_for_all_its_commands(world: World) -> None:
    relay = world.started()
    world.send("a", id="x")
    step_quietly(relay)
    store = relay.owners[0].store
    for id in ("x", "y", "x", "x"):
        world.put(None, delay_id=id, delay_action="cancel")
    with patch.object(store, "find_many", wraps=store.find_many) as find:
        step_quietly(relay)
    assert sorted(id for call in find.call_args_list for id in call.args[0]) == [b"x", b"y"]
    assert world.replies() == [("x", "cancelled", 1), ("y", "unknown", 0), *[("x", "cancelled", 0)] * 2]


def test_topics_that_are_made_up_hold_nobody_back(world: World) -> None:
    """A question for each of them, 40 ms: 3,000 held back everybody else's messages for two minutes."""
    relay = world.started()
    for number in range(300):
        headers = [("deliver-to", b"nobody-%d" % number), ("delay", b"1")]
        world._producer.produce(world.topic, b"", headers=headers)
    world._producer.flush(60)
    goes_on(world, relay)
    step_quietly(relay)
    assert len(world.letters()) == 300


@pytest.mark.parametrize("is_restarted", [False, True])
def test_topics_that_are_made_up_are_never_too_many(
    world: World, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    """65,536 of them ended the relay, and each one that was started after it."""
    monkeypatch.setattr(rows, "MOST_TARGETS", 50)
    relay = world.started()
    for first in range(0, 120, 30):
        for number in range(first, first + 30):
            headers = [("deliver-to", b"nobody-%d" % number), ("delay", b"1")]
            world._producer.produce(world.topic, b"", headers=headers)
        world._producer.flush(60)
        step_until(lambda: len(world.letters()) == first + 30, relay)  # noqa: B023
    if is_restarted:
        world.close(relay)
        relay = world.started()
    goes_on(world, relay)


@pytest.mark.parametrize(("count", "size"), [(7, 20_000), pytest.param(20, 990_000, marks=pytest.mark.long(seconds=9))])
@pytest.mark.long(seconds=4)
def test_many_messages_that_their_target_refuses(count: int, size: int, world: World) -> None:
    """A turn by themselves finds a few, those that are on their way together: no other one was tried, for ever."""
    relay = world.started()
    world.alter(world.target, "max.message.bytes", 5_000)
    for _ in range(count):
        world.put(os.urandom(size), deliver_to=world.target, deliver_at=world.now_ms)
    goes_on(world, relay)
    step_quietly(relay)
    assert (len(world.letters()), world.values()) == (count, ["good"])


# Topics


def test_a_target_that_is_one_of_the_relays_own_is_a_letter(world: World) -> None:
    relay = world.started()
    for name in ("", ".settled", ".replies", ".dead"):
        world.put(b"v", deliver_to=world.topic + name, deliver_at=0)
    goes_on(world, relay)
    assert len(reasons(world)) == 4


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_target_of_kafkas_own_is_a_letter(name: str, world: World) -> None:
    relay = world.started()
    goes_on(world, relay)
    world.put(b"v", deliver_to=name, deliver_at=0)
    goes_on(world, relay)
    goes_on(world, relay)
    assert len(reasons(world)) == 1


@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("name", ["dead", "replies"])
def test_a_topic_of_its_own_that_is_deleted_is_made_again(name: str, world: World) -> None:
    """Each turn was refused for it: nothing was delivered any more."""
    relay = world.started()
    topic = f"{world.topic}.{name}"
    world.remove(topic)
    world.put(b"bad")
    world.put(None, delay_id="a", delay_action="cancel")
    goes_on(world, relay)
    assert (len(world.letters()), world.replies()) == (1, [("a", "unknown", 0)])


def test_a_relay_does_not_start_on_topics_that_lose_records(world: World) -> None:
    """Which settings lose some: test_topics.py."""
    world.alter(world.topic, "retention.ms", "1000")
    with pytest.raises(UsageError, match=re.escape(f"The topic {world.topic} has retention.ms=1000")):
        world.relay()


# The group


def commit(world: World, offset: int) -> None:
    """Another program has the group's name, and says that it has read so far."""
    other = Consumer({**base_settings(world.broker.bootstrap, {}), "group.id": world.topic})
    other.commit(offsets=[TopicPartition(world.topic, 0, offset)], asynchronous=False)
    other.close()


@pytest.mark.parametrize("before", [0, 1])
def test_a_position_that_another_program_commits_for_the_group_loses_no_cancel(before: int, world: World) -> None:
    relay = world.started()
    world.send(*["before"] * before, in_ms=0)
    world.send("a", in_ms=1_000, id="x")
    step_quietly(relay)
    world.close(relay)
    world.put(None, delay_id="x", delay_action="cancel")
    commit(world, before + 2)
    relay = world.started()
    world.advance_ms(1_000)
    step_quietly(relay)
    assert (world.values(), world.replies()) == (["before"] * before, [("x", "cancelled", 1)])


@pytest.mark.parametrize("files", ["kept", "gone", "earlier"])
def test_a_position_that_another_program_sets_back_answers_nothing_twice(
    files: str, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if files == "earlier":  # those of a relay that did not write down how far commands are answered
        noted = LogSpan.notes
        monkeypatch.setattr(LogSpan, "notes", lambda self: {k: v for k, v in noted(self).items() if k != "answered"})
    relay = world.started()
    world.send("a", in_ms=1_000, id="x")
    world.put(None, delay_id="x", delay_action="cancel")
    step_quietly(relay)
    world.close(relay)
    if files == "gone":
        shutil.rmtree(world.folder / "one")
    commit(world, 0)
    step_quietly(world.started())
    assert world.replies() == [("x", "cancelled", 1)]
    assert f"{world.topic} stands at offset 0, and no relay committed that; it goes on at 2" in caplog.text


def test_a_position_of_the_relays_own_is_told_of_to_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send("a", in_ms=0)
    relay = world.started()
    step_quietly(relay)
    world.close(relay)
    step_quietly(world.started())
    assert "stands at offset" not in caplog.text


@pytest.mark.long(seconds=4)
def test_a_program_that_has_the_groups_name_for_itself_is_told_of_and_waited_for(world: World) -> None:
    settings = {**base_settings(world.broker.bootstrap, {}), "group.id": world.topic}
    other = Consumer({**settings, "partition.assignment.strategy": "range"})
    other.subscribe([world.target])
    step_until(lambda: other.poll(0.1) or other.assignment())
    relay = world.relay()
    step_until(lambda: world.lost, relay)
    assert "Inconsistent group protocol" in str(world.lost[0])
    other.close()
    goes_on(world, relay)


def test_two_relays_of_one_folder_and_one_name_are_one_too_many(world: World) -> None:
    first = world.started()
    second = world.relay()
    with pytest.raises(UsageError, match="is in use by another process: stop that relay, or give this one a folder"):
        step_until(lambda: False, first, second)


# The input


@pytest.mark.parametrize(("end", "hoped"), [("commit_transaction", ["in"]), ("abort_transaction", [])])
def test_a_transaction_that_a_user_leaves_open_in_the_input_holds_back_what_is_behind_it_and_nothing_else(
    end: str, hoped: list[str], world: World
) -> None:
    relay = world.started()
    world.send("before", in_ms=1_000)
    step_quietly(relay)
    hung = Producer({**base_settings(world.broker.bootstrap, {}), "transactional.id": "hung"})
    hung.init_transactions(10)
    hung.begin_transaction()
    hung.produce(world.topic, b"in", headers=[("deliver-to", world.target.encode()), ("deliver-at", b"5")])
    hung.flush(10)
    world.send("behind", in_ms=0)
    world.advance_ms(1_000)
    step_until(world.values, relay)
    assert world.values() == ["before"]
    getattr(hung, end)(10)
    step_until(lambda: "behind" in world.values(), relay)
    assert world.values() == ["before", *hoped, "behind"]


def test_what_strangers_write_to_a_target_is_printed_too(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`waterclock relay read` ended with a traceback where the header of the due time was no number."""
    producer = Producer(base_settings(world.broker.bootstrap, {}))
    untils = [b"abc", b"", b"-1", 5_000 * b"9", None, b"1000", b"92000"]
    for until in untils:
        producer.produce(world.target, b"v", headers=[("delayed-until", until)], timestamp=2_000)
        producer.flush()
    read = ["relay", "read", world.target, "--most", "7", "--bootstrap", world.broker.bootstrap]
    assert cli.main(read) == 0
    assert capsys.readouterr().out.splitlines() == [*5 * [f"{AT}  v"], f"{AT}  1s late  v", f"{AT}  1m30s early  v"]
    assert cli.main([*read, "--json"]) == 0
    told = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["late_ms"] for one in told] == [None, None, None, None, None, 1_000, -90_000]

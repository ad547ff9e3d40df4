"""`ls`, `due` and `show` from the logs alone, beside any relay; `files`, of a folder that was set aside."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from confluent_kafka.admin import NewPartitions

from tests.relay.lapping import YEAR_MS, cut_off, fill, lap, lapping, owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock import cli
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay.logs import Logs
from waterclock.relay.watching.view import View, bounds_of
from waterclock.relay.wire.request import Action
from waterclock.relay.wire.topics import Topics


def ask(world: World, *command: str) -> int:
    return cli.main(["relay", *command, "--bootstrap", world.broker.bootstrap, "--topic", world.topic, "--json"])


def told(capsys: pytest.CaptureFixture[str], world: World, *command: str) -> dict[str, list[dict[str, object]]]:
    capsys.readouterr()
    ask(world, *command)
    found: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return found


def test_an_ids_messages_are_shown_with_what_became_of_each_though_no_relay_runs(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    relay = world.started()
    world.send("fired", in_ms=0, id="a")
    world.send("cancelled", in_ms=1_000, id="a")
    step_until(world.values, relay)
    world.put(None, delay_id="a", delay_action="cancel")
    step_quietly(relay)
    world.close(relay)
    world.send("pending", in_ms=YEAR_MS, id="a")
    world.send("another's", in_ms=YEAR_MS, id="b")
    shown = told(capsys, world, "show", "a")["messages"]
    assert [(one["origin"], one["state"]) for one in shown] == [
        (f"{world.topic}-0-0", "delivered"),
        (f"{world.topic}-0-1", "cancelled"),
        (f"{world.topic}-0-3", "pending"),
    ]
    assert (ask(world, "show", "b"), ask(world, "show", "nobody")) == (0, 1)


def test_what_was_moved_on_is_listed_once_and_what_is_due_next_is_said(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS, id="a")
    step_quietly(relay)
    lap(world, relay)
    (span,) = told(capsys, world, "ls")["pending"]
    assert (span["target"], span["pending"]) == (world.target, 1)
    (partition,) = told(capsys, world, "due")["partitions"]
    due_ms = owner_of(relay).store.next_due
    assert (partition["partition"], partition["pending"], partition["next_due_ms"]) == (0, 1, due_ms)
    (message,) = told(capsys, world, "show", "a")["messages"]
    assert (message["origin"], message["state"], message["due_ms"]) == (f"{world.topic}-0-0", "pending", due_ms)


def test_a_message_and_its_copy_are_one_and_what_was_delivered_before_is_shown_for_as_long_as_the_log_has_it(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.relay.upkeep.upkeep.Trims.step", lambda trims: None)  # both stand in the log
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS, id="a")
    world.send("now", in_ms=0, id="b")
    step_quietly(relay)
    fill(world, relay)
    step_until(lambda: relay._counts.laps, relay)
    assert len(told(capsys, world, "show", "a")["messages"]) == 1
    assert [one["state"] for one in told(capsys, world, "show", "b")["messages"]] == ["delivered"]


def test_what_was_asked_of_a_message_and_not_answered_yet_came_behind_it(world: World) -> None:
    world.close(world.started())
    for id, value in (("b", "before its cancel"), ("a", None), ("a", "after its cancel"), ("b", None)):
        if value is None:
            world.put(None, delay_id=id, delay_action="cancel")
        else:
            world.send(value, in_ms=YEAR_MS, id=id)
    with closing(Logs(base_settings(world.broker.bootstrap, {}))) as logs:
        topics = Topics.of(world.topic)
        (bounds,) = bounds_of(world.admin, logs, topics)
        seen = [(one.message.value(), one.asked) for one in View(logs, topics, bounds).pending()]
    assert seen == [(b"before its cancel", Action.CANCEL), (b"after its cancel", None)]


def test_where_no_snapshot_says_what_was_settled_before_nothing_is_listed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.send("now", in_ms=0)
    relay = world.started()
    step_until(world.values, relay)
    step_quietly(relay)
    world.cut(1, f"{world.topic}.settled")
    assert ask(world, "ls") == 2
    assert "no snapshot of what was settled before can be read" in capsys.readouterr().err


def test_with_a_snapshot_what_was_cut_off_is_known(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS, id="a")
    step_quietly(relay)
    cut_off(world, relay)
    assert sum(int(str(span["pending"])) for span in told(capsys, world, "ls")["pending"]) == 1


def test_a_topic_that_is_no_relays_is_refused_with_a_sentence(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["relay", "ls", "--bootstrap", world.broker.bootstrap, "--topic", world.target]) == 2
    assert f"There is no topic {world.target}.settled" in capsys.readouterr().err


def test_what_stands_in_partitions_that_a_list_of_before_lacks_is_pending_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = world.admin.topics()
    for topic in (f"{world.topic}.settled", world.topic):
        added = world.admin.client.create_partitions([NewPartitions(topic, 2)])
        added[topic].result(10)
    world.send("there", in_ms=YEAR_MS, partition=1)
    monkeypatch.setattr(Admin, "topics", lambda admin: listed)
    settings = base_settings(world.broker.bootstrap, {})
    with closing(Logs(settings)) as logs:
        topics = Topics.of(world.topic)
        seen = [one for bounds in bounds_of(world.admin, logs, topics) for one in View(logs, topics, bounds).pending()]
    assert [one.message.value() for one in seen] == [b"there"]


def test_the_messages_of_a_folder_that_was_set_aside_are_printed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    relay = world.started()
    world.put(
        b"hello", key=b"\xff", deliver_to=world.target, deliver_at=world.now_ms + YEAR_MS, delay_id="a", trace="x"
    )
    step_quietly(relay)
    folder = owner_of(relay).store.folder
    world.close(relay)
    assert cli.main(["relay", "files", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert (printed["origin"], printed["topic"], printed["id"], printed["value"]) == (0, world.target, "a", "hello")
    assert printed["key_base64"] == "/w=="
    assert {"name": "trace", "value": "x"} in printed["headers"]
    assert captured.err == "waterclock: 1 message\n"
    (data,) = folder.glob("*.data")
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    assert cli.main(["relay", "files", str(folder)]) == 1
    assert "1 are damaged, and are not printed" in capsys.readouterr().err
    assert cli.main(["relay", "files", str(world.folder)]) == 2

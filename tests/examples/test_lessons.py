"""The lessons of order and duplicates tell what they claim: each number of their tables, from a real client and broker."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("confluent_kafka")

from waterclock import cli
from waterclock.errors import pip_install
from waterclock.examples import command
from waterclock.examples.command import LESSONS
from waterclock.examples.lessons import acks, batching, duplicates, keys, order, replicas
from waterclock.examples.lessons.clients import ONE_BY_ONE, flush, producer, read, send
from waterclock.examples.lessons.lesson import WIDTH, Lesson, tell
from waterclock.testing import Broker, Error


def by_case(lesson: Lesson) -> dict[str, dict[str, Any]]:
    return {row["case"]: row for row in lesson.rows}


@pytest.fixture(scope="module")
def ordered() -> dict[str, dict[str, Any]]:
    return by_case(order.lesson())


@pytest.mark.long(seconds=6)
def test_a_retry_with_five_in_flight_puts_a_message_behind_its_followers(ordered: dict[str, dict[str, Any]]) -> None:
    stored = ordered["five in flight"]["stored"]
    assert sorted(stored) == order.LETTERS
    assert stored.index("A") > stored.index("C")
    assert [letter for letter in stored if letter != "A"] == order.LETTERS[1:]


@pytest.mark.long(seconds=10)
def test_max_in_flight_1_of_this_client_still_lets_one_message_overtake(ordered: dict[str, dict[str, Any]]) -> None:
    assert ordered["max.in.flight=1"]["stored"] == ["B", "A", *order.LETTERS[2:]]


@pytest.mark.long(seconds=10)
def test_who_waits_for_each_answer_keeps_the_order_and_pays_with_the_rate(ordered: dict[str, dict[str, Any]]) -> None:
    assert ordered["waits for each"]["stored"] == order.LETTERS
    assert ordered["waits for each"]["messages/s"] <= 1000 / order.ROUND_TRIP_MS
    assert ordered["waits for each"]["messages/s"] < ordered["five in flight"]["messages/s"]


@pytest.mark.long(seconds=10)
def test_idempotence_keeps_the_order_with_five_in_flight(ordered: dict[str, dict[str, Any]]) -> None:
    assert ordered["idempotence"]["stored"] == order.LETTERS
    assert ordered["idempotence"]["messages/s"] > ordered["waits for each"]["messages/s"] * 2


def test_a_first_batch_that_is_refused_is_missing_and_told_as_delivered_although_idempotence_is_on() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        sender = producer(broker.bootstrap, **ONE_BY_ONE, enable_idempotence=True)
        with broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER):
            assert sorted(send(sender, "orders", "ABC")) == ["A", "B", "C"]
        assert read(broker.bootstrap, "orders") == ["B", "C"]


@pytest.fixture(scope="module")
def doubled() -> dict[str, dict[str, Any]]:
    return by_case(duplicates.lesson())


@pytest.mark.parametrize(
    ("case", "stored", "seen"),
    [
        ("sent again", "AABC", "AABC"),
        ("one writer, who looks", "ABC", "ABC"),
        ("an id for each message", "AABC", "ABC"),
        ("idempotence", "ABC", "ABC"),
        ("crash before the commit", "ABC", "ABBC"),
        ("result and offset in one", "ABC", "ABC"),
    ],
)
@pytest.mark.long(seconds=3)
def test_a_duplicate_is_made_and_each_cure_removes_it(
    doubled: dict[str, dict[str, Any]], case: str, stored: str, seen: str
) -> None:
    row = doubled[case]
    assert (row["stored"], row["seen"]) == (list(stored), list(seen))
    assert (row["duplicates"], row["lost"]) == (len(seen) - 3, 0)


@pytest.fixture(scope="module")
def crashed() -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["crash"], row["acks"]): row for row in acks.lesson(kills=2).rows}


@pytest.mark.long(seconds=10)
def test_a_kill_loses_what_acks_0_had_on_its_way_and_nothing_else(
    crashed: dict[tuple[str, str], dict[str, Any]],
) -> None:
    assert crashed["kill -9", "0"]["lost"] > 0
    assert [crashed["kill -9", a]["lost each"] for a in ("1", "all")] == [[0, 0], [0, 0]]
    assert all(crashed["kill -9", a]["told"] > 0 for a in acks.ACKS)


@pytest.mark.long(seconds=10)
def test_a_power_cut_loses_what_acks_1_had_not_on_the_disk_and_acks_all_had_promised_nothing(
    crashed: dict[tuple[str, str], dict[str, Any]],
) -> None:
    told_and_lost = [(crashed["power cut", a]["told"], crashed["power cut", a]["lost"]) for a in acks.ACKS]
    assert told_and_lost == [(acks.CUT, acks.CUT), (acks.CUT, acks.CUT), (0, 0)]


@pytest.fixture(scope="module")
def by_key() -> dict[str, dict[str, Any]]:
    return by_case(keys.lesson())


@pytest.mark.parametrize(
    ("case", "in_all", "in_an_account", "twice"),
    [
        ("one partition", False, False, False),
        ("three partitions", True, False, False),
        ("second consumer, commits first", True, False, False),
        ("second consumer, no commit", True, True, True),
    ],
)
def test_order_holds_in_a_partition_and_by_key_as_long_as_what_is_done_is_committed(
    by_key: dict[str, dict[str, Any]], case: str, in_all: bool, in_an_account: bool, twice: bool
) -> None:
    row = by_key[case]
    assert row["bookings"] == keys.ALL
    steps = (row["steps back"] > 0, row["in an account"] > 0, row["done twice"] > 0)
    assert steps == (in_all, in_an_account, twice)


def test_without_a_commit_everything_done_before_the_rebalance_is_done_twice(
    by_key: dict[str, dict[str, Any]],
) -> None:
    assert by_key["second consumer, no commit"]["done twice"] >= keys.HALF // 2


@pytest.fixture(scope="module")
def binlogs() -> Lesson:
    pytest.importorskip("pyarrow")
    from waterclock.examples.lessons import binlog

    return binlog.lesson()


def test_a_mirror_is_right_in_whatever_order_changes_come_and_a_naive_sink_in_half_of_them(binlogs: Lesson) -> None:
    sent = binlogs.rows[:6]
    assert len({tuple(row["came as"]) for row in sent}) == 6
    assert all(row["mirror"] == row["source"] == "nothing" for row in binlogs.rows)
    wrong = {" ".join(row["came as"]): row["naive"] for row in sent if row["wrong"]}
    assert wrong == {
        "update delete insert": "pen at 1",
        "delete insert update": "pen at 2",
        "delete update insert": "pen at 1",
    }


def test_a_retry_swaps_the_changes_of_a_row_and_leaves_it_in_a_naive_sink(binlogs: Lesson) -> None:
    retried = binlogs.rows[-1]
    assert sorted(retried["came as"]) == ["delete", "insert", "update"]
    assert retried["came as"] != ["insert", "update", "delete"]
    assert retried["mirror"] == "nothing"


def replicated(*cases: tuple[str, bool, bool]) -> list[dict[str, Any]]:
    return replicas.lesson([replicas.Case(*case) for case in cases], load_s=0.1).rows


def test_what_acks_1_acknowledged_while_the_follower_stood_still_is_lost_with_the_leader() -> None:
    (row,) = replicated(("1", True, True))
    assert (row["kept"], row["lost"]) == (0, row["acknowledged"])
    assert row["acknowledged"] > 0
    assert row["messages/s"] > 0


@pytest.mark.long(seconds=25)
def test_with_two_replicas_acks_all_loses_nothing_and_acknowledges_nothing_that_one_of_them_has_not() -> None:
    rows = {tuple(row.values())[:3]: row for row in replicas.lesson(load_s=0.2).rows}
    assert len(rows) == 12
    for (asked, follower, leader), row in rows.items():
        assert row["acknowledged"] == row["kept"] + row["lost"]
        assert (row["acknowledged"] == 0) == (asked == "all" and follower == "stands still")
        if asked == "all" or leader == "lives":
            assert row["lost"] == 0
        elif follower == "stands still":
            assert row["lost"] == row["acknowledged"]


def test_batches_make_fewer_requests_and_keep_every_message_in_order() -> None:
    rows = {row["way"]: row for row in batching.lesson(30).rows}
    assert all(row["all kept"] for row in rows.values())
    assert [rows[way]["requests"] for way in ("one by one", "a request each")] == [30, 30]
    assert rows["batched"]["requests"] < 30
    assert rows["linger 50 ms"]["slow requests"] * 2 < rows["batched"]["slow requests"]
    assert rows["one by one"]["messages/s"] <= 1000 / batching.ROUND_TRIP_MS
    assert rows["batched"]["messages/s"] > rows["one by one"]["messages/s"]


# As commands


LESSON = Lesson("A title", [{"case": "one", "stored": ["A", "B"], "in order": True, "rate": 1234}], ["A sentence."])


def test_a_lesson_is_a_small_table_for_people(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(order, "lesson", lambda: LESSON)
    assert cli.main(["demo", "order"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "A title",
        "",
        "case  stored  in order  rate",
        "----  ------  --------  -----",
        "one   A B     yes       1,234",
        "",
        "- A sentence.",
    ]


@pytest.mark.parametrize("missing", ["kio", "confluent_kafka"])
def test_a_lesson_without_its_packages_says_how_to_get_all(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named those of one, and the next time those of the other."""
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == missing else name)
    assert cli.main(["demo", "order"]) == 1
    told = capsys.readouterr().err
    assert told.splitlines() == [
        f"waterclock: {missing} is missing, and this demo needs it: {pip_install('broker', 'kafka')}",
        "waterclock: to see what else is missing here: waterclock doctor broker kafka",
    ]


def test_the_lesson_of_a_binlog_asks_for_the_one_package_that_it_lacks_and_not_for_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "pyarrow" else name)
    assert cli.main(["demo", "binlog"]) == 1
    told = capsys.readouterr().err
    assert told == "waterclock: pyarrow is missing, and this demo needs it: pip install pyarrow\n"


def test_a_lesson_is_json_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(duplicates, "lesson", lambda: LESSON)
    assert cli.main(["demo", "duplicates", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"title": LESSON.title, "rows": LESSON.rows, "learned": LESSON.learned}


def test_what_a_lesson_says_is_folded_to_a_terminal(capsys: Any) -> None:
    words = "a sentence of more than eighty columns, " * 3
    tell(words)
    text = Lesson(words, LESSON.rows, [words]).as_text() + "\n" + capsys.readouterr().err
    assert text.count("sentence") == 9
    assert max(map(len, text.splitlines())) <= WIDTH


def test_an_interrupt_while_a_report_is_taken_is_not_lost() -> None:
    """The client makes a SystemError of it, and Ctrl-C was a traceback."""
    sender = producer("127.0.0.1:1")
    sender.produce("nowhere", "", on_delivery=lambda error, message: signal.raise_signal(signal.SIGINT))
    sender.purge()  # it is reported as not sent
    with pytest.raises(KeyboardInterrupt):
        flush(sender)


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_of_the_command_is_there(name: str) -> None:
    from importlib import import_module

    assert callable(import_module(f"waterclock.examples.lessons.{name}").lesson)

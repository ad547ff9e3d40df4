"""What `waterclock demo cdc` believes nobody, it finds: each kind of error, put into what was right, is counted."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pymysql")
pytest.importorskip("psycopg")

from waterclock.errors import WaterclockError
from waterclock.examples.cdc import checker as checking
from waterclock.examples.cdc import compare, ledger
from waterclock.examples.cdc.checker import Checker, OrderErrors
from waterclock.examples.cdc.partitioning import partition_of
from waterclock.examples.cdc.shop import Version
from waterclock.examples.cdc.tables import Column, ShopTable

HISTORY = [
    [Version("item", "insert", (1,), 1), Version("item", "insert", (2,), 1)],
    [Version("item", "update", (1,), 2)],
    [Version("item", "delete", (2,), 1), Version("item", "update", (1,), 3)],
]
ITEM = ShopTable(
    "item",
    (Column("id", "", "number", lambda chance: 1),),
    (Column("name", "", "text", lambda chance: ""), Column("price", "", "decimal", lambda chance: "")),
)
NAMES = {(1, 1): "pen", (1, 2): "ink", (1, 3): "nib", (2, 1): "cap"}
Message = tuple[int, int, bytes | None, bytes | None]


def message(transaction: int, place: int, partition: int = 0, offset: int | None = None, **other: Any) -> Message:
    """A change as it has to come; `other` takes the place of what it says. A value of None takes it away."""
    version = HISTORY[transaction][place]
    key, name = {"database": "shop", "table": "item", "pk.id": version.key[0]}, NAMES[version.key[0], version.rev]
    event = {
        "database": "shop", "table": version.table, "type": version.operation, "gtid": f"0-1-{transaction + 8}",
        "sequence": transaction + 100, "xoffset": place, "primary_key_columns": ["id"],
        "data": {"id": version.key[0], "rev": version.rev, "name": name, "price": None},
    }  # fmt: skip
    if version.operation == "update":
        event["old"] = {"rev": version.rev - 1, "name": NAMES[version.key[0], version.rev - 1]}
    if place == len(HISTORY[transaction]) - 1:
        event["commit"] = True
    event = {name: value for name, value in (event | other).items() if value is not None}
    lies = 2 * transaction + place if offset is None else offset  # a commit takes an offset too
    return partition, lies, json.dumps(key).encode(), json.dumps(event).encode()


def data(**other: Any) -> dict[str, Any]:
    """Of the last change: what is in its row."""
    return {"id": 1, "rev": 3, "name": "nib", "price": None} | other


RIGHT = [message(0, 0), message(0, 1), message(1, 0), message(2, 0), message(2, 1)]
HEAD, FIRST = RIGHT[:-1], RIGHT[0]


def checked(messages: list[Message]) -> OrderErrors:
    checker = Checker(HISTORY, 7, [ITEM])
    for each in messages:
        checker.take(*each)
    return checker.end()


def test_what_was_committed_and_nothing_else_has_no_errors() -> None:
    assert checked(RIGHT) == OrderErrors(versions=5)
    other = [message(1, 0, 1), message(2, 1, 1)]  # other keys may stand in other partitions
    assert checked([message(0, 0, 1, 0), *other, message(0, 1, 0, 0), message(2, 0)]).errors == 0


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        (HEAD, {"missing": 1}),
        ([*RIGHT, FIRST], {"twice": 1, "swapped": 1}),
        ([FIRST, RIGHT[1], RIGHT[3], RIGHT[4], RIGHT[2]], {"swapped": 1}),
        ([*RIGHT[:2], message(1, 0, partition=1), *RIGHT[3:]], {"swapped": 2}),
        ([*HEAD, message(2, 1, sequence=100)], {"swapped": 1}),
        ([*RIGHT[:2], (0, 2, RIGHT[1][2], RIGHT[2][3]), *RIGHT[3:]], {"strange": 1}),
        ([*RIGHT[:2], (1, 2, RIGHT[1][2], RIGHT[2][3]), *RIGHT[3:]], {"strange": 1, "swapped": 2}),
        ([*HEAD, message(2, 1, data=data(rev=4))], {"strange": 1}),
        ([*RIGHT, message(0, 0, gtid="0-1-99")], {"strange": 1}),
        ([*HEAD, message(2, 1, commit=False)], {"torn": 1}),
        ([message(0, 0, commit=True), *RIGHT[1:]], {"torn": 1}),
    ],
)
def test_each_order_error_is_counted(messages: list[Message], wrong: dict[str, int]) -> None:
    found = checked(messages)
    counts = {name: count for name, count in asdict(found).items() if count and name != "versions"}
    assert counts == wrong
    assert found.errors == sum(wrong.values())


@pytest.mark.parametrize(
    "last",
    [
        message(2, 1, old={"rev": 2}),
        message(2, 1, old={"rev": 2, "name": "pen"}),
        message(2, 1, old={"rev": 1, "name": "ink"}),
        message(2, 1, old={"rev": 2, "name": "ink", "colour": "red"}),
        message(2, 1, old=None),
        message(2, 1, data=data(price="")),
        message(2, 1, data=data(price=1.5)),
        message(2, 1, data=data(price="1.50"), old={"rev": 2, "name": "ink", "price": None}),
        message(2, 1, data=data(name=7)),
        message(2, 1, data={"id": 1, "rev": 3, "name": "nib"}),
        message(2, 1, data=data(colour="red")),
    ],
    ids=[
        "a former value left out", "a wrong former value", "a wrong former rev", "a former value of no column",
        "no former values", "empty for null", "a change that is not told", "a number as text", "a text as a number",
        "a column missing", "a column too many",
    ],
)  # fmt: skip
def test_a_version_that_does_not_go_on_from_the_one_before_is_wrong(last: Message) -> None:
    assert checked([*HEAD, last]) == OrderErrors(versions=5, wrong=1)


def test_a_deleted_row_that_was_not_like_that_is_wrong() -> None:
    other = message(2, 0, data={"id": 2, "rev": 1, "name": "", "price": None})
    assert checked([*RIGHT[:3], other, RIGHT[4]]) == OrderErrors(versions=5, wrong=1)


@pytest.mark.parametrize(
    "strange",
    [
        (0, 5, None, RIGHT[4][3]),
        (0, 5, RIGHT[4][2], None),
        (0, 5, RIGHT[4][2], b"[]"),
        (0, 5, b'{"database":"shop","table":"items","pk.id":1}', RIGHT[4][3]),
        (0, 5, b'{"database":"shop","table":"item","pk.id":"1"}', RIGHT[4][3]),
        message(2, 1, gtid="5-1-10"),
        message(2, 1, xoffset=-1),
        message(2, 1, xoffset=True),
        message(2, 1, sequence="102"),
        message(2, 1, database="other"),
        message(2, 1, table="others"),
        message(2, 1, primary_key_columns=["name"]),
        message(2, 1, data=data(id=1.0)),
        message(2, 1, data=data(rev=True)),
    ],
)
def test_what_is_none_of_the_shops_messages_is_strange_and_ends_nothing(strange: Message) -> None:
    found = checked([*HEAD, strange])
    assert (found.versions, found.strange) == (5, 1)


def test_a_row_that_is_wholly_in_another_partition_than_its_key_belongs_to_is_strange() -> None:
    """Its order is kept, but who else writes by key, with Kafka's own clients, would write elsewhere."""
    checker = Checker(HISTORY, 7, [ITEM])
    checker.partitions = 4
    homes = [partition_of(each[2] or b"", 4) for each in RIGHT]
    for (_, _, key, value), home in zip(RIGHT, homes, strict=True):
        checker.take(home, checker.found.versions, key, value)
    assert checker.end().strange == 0
    for _, _, key, value in RIGHT:
        checker.take((homes[0] + 1) % 4 if key == FIRST[2] else homes[1], 9, key, value)
    assert checker.found.strange == 3


def test_a_transaction_has_one_sequence_that_is_larger_than_the_one_before() -> None:
    """A wrong one was seen only where the same row came again."""
    assert checked([*HEAD[:3], message(2, 0, sequence=103), RIGHT[4]]).swapped == 1
    assert checked([*RIGHT[:2], message(1, 0, sequence=102), *RIGHT[3:]]).swapped == 1


def test_a_transaction_in_two_of_kafkas_is_torn() -> None:
    """Nothing is missing and all is in order, but a reader saw half of it: a commit stands between, at an offset."""
    assert checked([*HEAD, message(2, 1, offset=6)]) == OrderErrors(versions=5, torn=1)


OLDER = {"item": [(1,), (2,), (3,)]}  # and what the history does to them begins with the second transaction


def older(key: int, rev: int, sequence: int, offset: int, partition: int = 0, **other: Any) -> Message:
    """A row that is older than the log, as it has to come."""
    row = {"id": key, "rev": rev, "name": NAMES.get((key, rev), "lid"), "price": None}
    event = {"database": "shop", "table": "item", "type": "bootstrap-insert", "gtid": "", "sequence": sequence}
    event |= {"xoffset": key, "primary_key_columns": ["id"], "data": row} | other
    named = {"database": "shop", "table": "item", "pk.id": key}
    return partition, offset, json.dumps(named).encode(), json.dumps(event).encode()


BESIDE = [message(1, 0), older(1, 2, 150, 3), older(2, 1, 150, 4), older(3, 1, 150, 5)]
BEHIND = [message(2, 0, offset=8, sequence=151), message(2, 1, offset=9, sequence=151)]


def checked_beside(messages: list[Message]) -> OrderErrors:
    checker = Checker([[], *HISTORY[1:]], 7, [ITEM], OLDER)
    for each in messages:
        checker.take(*each)
    return checker.end()


def test_a_row_that_is_older_than_the_log_comes_once_as_it_is_where_it_stands() -> None:
    assert checked_beside([*BESIDE, *BEHIND]) == OrderErrors(versions=6, older=3)
    gone_before = [message(1, 0), *BEHIND, older(1, 3, 153, 12), older(3, 1, 153, 13)]
    assert checked_beside(gone_before) == OrderErrors(versions=5, older=2)


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([*BESIDE[:3], *BEHIND], {"missing": 1}),
        ([BESIDE[0], *BESIDE[2:], *BEHIND], {"missing": 1}),
        ([*BESIDE, *BEHIND, older(3, 1, 153, 12)], {"twice": 1}),
        ([*BESIDE, *BEHIND, older(2, 1, 153, 12)], {"twice": 1, "swapped": 1}),
        ([BESIDE[0], older(1, 1, 150, 3), *BESIDE[2:], *BEHIND], {"wrong": 1}),
        ([*BESIDE[1:], BESIDE[0], *BEHIND], {"wrong": 1, "swapped": 1}),
        ([*BESIDE[:3], older(3, 2, 150, 5), *BEHIND], {"wrong": 1}),
        ([*BESIDE[:3], older(3, 1, 151, 5), *BEHIND], {"swapped": 1}),
        ([*BESIDE[:3], older(3, 1, 150, 6), *BEHIND], {"torn": 1}),
        ([*BESIDE, *BEHIND, older(4, 1, 153, 12)], {"strange": 1}),
    ],
    ids=["none of a row", "none, though it changed before", "twice", "after its delete", "its former state",
         "a later state", "another version", "a transaction's sequence", "a chunk in two", "of no row"],
)  # fmt: skip
def test_each_error_of_an_older_row_is_counted(messages: list[Message], wrong: dict[str, int]) -> None:
    found = checked_beside(messages)
    assert {name: n for name, n in asdict(found).items() if n and name not in ("versions", "older")} == wrong


class Topic:
    """A consumer of the right messages; it says how long it was asked to wait."""

    def __init__(self, _: Any) -> None:
        self.left = [*(Read(each) for each in RIGHT), Read(None)]
        Topic.waited_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: SimpleNamespace(topics={"shop": SimpleNamespace(partitions={0: None})})

    def consume(self, count: int, timeout_s: float) -> list[Read]:
        given, self.left = self.left[:count], self.left[count:]
        Topic.waited_s += timeout_s * (len(given) < count)
        return given


class Read:
    """A message, or the end of the partition."""

    def __init__(self, message: Message | None) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        if name == "error":
            return lambda: None if self._message else "the end"
        found = self._message or (0, 0, None, None)
        return lambda: found[("partition", "offset", "key", "value").index(name)]


def test_what_is_in_the_topic_is_read_without_waiting_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a small run stood still for half a minute, and heard no Ctrl-C: it had asked for 10,000 messages."""
    monkeypatch.setattr(checking, "Consumer", Topic)
    checker = Checker(HISTORY, 7, [ITEM])
    assert checking.check_topic("", "shop", checker).errors == 0
    assert Topic.waited_s <= 1


def test_a_broker_that_says_nothing_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "Consumer", Topic)
    monkeypatch.setattr(Topic, "consume", lambda *_: [])
    with pytest.raises(WaterclockError, match="the broker does not give what is in the topic"):
        checking.check_topic("", "shop", Checker(HISTORY, 7, [ITEM]))


def positions(**other: tuple[str, bool]) -> list[ledger.Told]:
    rows = {"1": (f"{102:016x}{1:016x}", False), "2": (f"{102:016x}{0:016x}", True)} | other
    return [("shop.item", json.dumps({"id": f"i{key}"}), *told) for key, told in rows.items()]


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (positions(), 0),
        (positions()[1:], 1),
        ([*positions(), positions()[0]], 1),
        (positions(**{"1": (f"{101:016x}{0:016x}", False)}), 1),
        (positions(**{"2": (f"{102:016x}{0:016x}", False)}), 1),
        (positions(**{"3": (f"{102:016x}{0:016x}", True)}), 1),
    ],
    ids=["right", "missing", "twice", "an older one", "deleted, and not so", "of no row"],
)
def test_the_target_has_to_know_the_last_place_of_each_row(told: list[ledger.Told], wrong: int) -> None:
    checker = Checker(HISTORY, 7, [ITEM])
    for each in RIGHT:
        checker.take(*each)
    assert ledger.wrong_positions(checker.rows, told, [ITEM]) == wrong


@pytest.mark.parametrize("counts", [(9, 10, 0), (10, 9, 0), (11, 10, 0), (10, 11, 0), (10, 10, 1)])
def test_each_change_is_to_be_applied_once_and_none_put_aside(counts: tuple[int, int, int]) -> None:
    assert ledger.Ledger(5, 0, *counts).errors(10) == 1
    assert ledger.Ledger(5, 0, 10, 10, 0).errors(10) == 0


@pytest.mark.parametrize(
    ("how", "there", "equal", "other"),
    [
        ("decimal", "12.50", "12.50", "12.5"),
        ("text", "", "", " "),
        ("number", "18446744073709551615", "18446744073709551615", "18446744073709551614"),
        ("number", "1", "1", "1.0"),
        ("number", "1", "1", "true"),
        ("float", "1e22", "10000000000000000000000", "10000000000000000000001000000"),
        ("bits", b"\x01\x00", "256", "1"),
        ("set", "a,b", '["a","b"]', '["b","a"]'),
        ("set", "", "[]", '[""]'),
        ("set", "a", '["a"]', "a"),
        ("json", '{"a": 1.10}', '{"a":1.10}', '{"a":1.2}'),
        ("json", '{"a": 1.10}', '{"a":1.10}', '{"a":1.1}'),
        ("json", "[1e22, true]", "[1E+22,true]", "[1e22,1]"),
        ("json", "[0]", "[0]", "[false]"),
        ("bytes", b"\0\0", "AAA=", "AA=="),
    ],
)
def test_values_are_compared_as_what_they_are(how: str, there: Any, equal: str, other: str) -> None:
    table = ShopTable("item", (), (Column("value", "", how, lambda chance: None),))
    row = {"rev": "1", "value": there}
    assert compare._unlike(table, row, {"rev": "1", "value": equal}) == ""
    assert compare._unlike(table, row, {"rev": "1", "value": other}) != ""
    assert compare._unlike(table, row, {"rev": "1"}) != ""
    assert compare._unlike(table, row | {"value": None}, {"rev": "1"}) == ""


def test_a_second_row_of_a_key_a_row_and_a_table_too_many_are_extra() -> None:
    """Rows of a target without its primary key were one where they had one key."""
    ours = [{"id": str(n), "rev": "1", "name": "a", "price": "1.50"} for n in (1, 2, 3)]

    def compared(theirs: list[dict[str, Any]]) -> tuple[int, int, int]:
        found = compare.Differences()
        compare.compare_table(ITEM, ours, theirs, found)
        return found.missing, found.extra, found.different

    assert compared(ours) == (0, 0, 0)
    assert compared([*ours, ours[1]]) == (0, 1, 0)
    assert compared([*ours, ours[0] | {"id": "4"}]) == (0, 1, 0)
    assert compared(ours[1:]) == (1, 0, 0)
    assert compared([]) == (3, 0, 0)
    assert compared([*ours[:2], ours[2] | {"price": "1.5"}]) == (0, 0, 1)

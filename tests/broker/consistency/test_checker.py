"""The checker finds each kind of violation in a history made by hand, and nothing in one beside it where all is well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.broker.consistency.cycles import allowed
from tests.broker.consistency.facts import COMMITTED, UNCOMMITTED, Facts
from tests.broker.consistency.history import NEVER_NS, History, Op, Writer
from tests.broker.consistency.promises import violations

NUMBERS = count(1)
Log = list[tuple[int, int]]


def op(kind: str, process: str = "p", begin: int = 1, end: int = 2, outcome: str = "ok", **fields: Any) -> Op:
    commit = fields.pop("commit", None)
    return Op(process, fields.pop("number", next(NUMBERS)), kind, begin, end, outcome, commit, fields)


def send(
    *values: int, outcome: str = "ok", at: int | None = 0, process: str = "p", topic: str = "t", **more: Any
) -> Op:
    writes = [[topic, 0, "k", value] for value in values]
    results = [None if at is None else at + place for place in range(len(values))]
    return op("send", process, outcome=outcome, writes=writes, results=results, **more)


def txn(*values: int, process: str = "p", topic: str = "t", **more: Any) -> Op:
    more.setdefault("commit", 5 if more.get("outcome", "ok") != "fail" else None)
    more = {"begin": 4, "end": 6, "id": "x", "instance": 0, **more}
    return op("txn", process, writes=[[topic, 0, "k", value] for value in values], **more)


def poll(*log: tuple[int, int], isolation: str = COMMITTED, session: int = 1, topic: str = "t", **more: Any) -> Op:
    more = {"begin": 7, "end": 8, **more}
    rows = [[topic, 0, offset, value] for offset, value in log]
    return op("poll", "reader", isolation=isolation, session=session, rows=rows, **more)


def final(*log: tuple[int, int], also: tuple[tuple[int, int], ...] = (), topic: str = "t", more: Any = ()) -> list[Op]:
    """The log in the end; `also` is what only a reader of everything sees, `more` rows of other topics."""
    committed = [[topic, 0, *one] for one in log] + list(more)
    everything = committed + [[topic, 0, *one] for one in also]
    everything.sort(key=lambda row: row[:3])
    return [
        op("final", "campaign", 90, 91, isolation=COMMITTED, rows=committed),
        op("final", "campaign", 92, 93, isolation=UNCOMMITTED, rows=everything),
    ]


def init(process: str, begin: int, end: int, number: int = 0, outcome: str = "ok") -> Op:
    return op("init", process, begin, end, outcome, id="x", number=number)


def offsets(kind: str, offset: int, begin: int, end: int, outcome: str = "ok") -> Op:
    return op(kind, "member", begin, end, outcome, group="g", offsets={"t-0": offset})


def end_of(high: int, begin: int, end: int) -> Op:
    return op("watermark", "reader", begin, end, topic="t", partition=0, high=high)


def transformed(output: int, source: int, **more: Any) -> Op:
    return txn(output, topic="out", inputs=[source], group="g", offsets={"in-0": 1}, **more)


IN_OUT = [["in", 0, 0, 1], ["out", 0, 0, 11]]

WRONG: dict[str, tuple[str, list[Op]]] = {
    "an acknowledged record that is gone": ("lost", [send(1, 2), *final((0, 1))]),
    "an acknowledged transaction that is gone": ("lost", [txn(1), *final()]),
    "a value twice": ("doubled", [send(1), *final((0, 1), (1, 1))]),
    "an aborted value that is there": ("aborted", [txn(1, outcome="fail"), *final((0, 1))]),
    "an aborted value that was read": ("aborted", [txn(1, outcome="fail"), poll((0, 1)), *final(also=((0, 1),))]),
    "a value of a process that died before its commit": (
        "aborted",
        [txn(1, outcome="unknown", end=NEVER_NS, commit=None), *final((0, 1))],
    ),
    "a value before its commit": ("early", [txn(1, commit=20, end=21), poll((0, 1)), *final((0, 1))]),
    "half a transaction": ("torn", [txn(1, 2, outcome="unknown"), *final((0, 1), also=((1, 2),))]),
    "a value of nobody": ("phantom", [*final((0, 1))]),
    "a value in another partition": ("phantom", [send(1, topic="other", at=None), *final((0, 1))]),
    "another value at an offset": ("vanished", [send(1), send(2, at=None), poll((0, 2)), *final((0, 1))]),
    "nothing at an offset": ("vanished", [send(2, at=None), poll((3, 2), isolation=UNCOMMITTED), *final()]),
    "another offset than acknowledged": ("misplaced", [send(1, at=7), *final((0, 1))]),
    "a record that a reader went past": (
        "skipped",
        [send(1, 2, 3), poll((0, 1)), poll((2, 3)), *final((0, 1), (1, 2), (2, 3))],
    ),
    "a record twice in one session": (
        "backwards",
        [send(1, 2), poll((0, 1), (1, 2)), poll((1, 2)), *final((0, 1), (1, 2))],
    ),
    "a producer's values out of order": ("unordered", [send(2), send(1, at=1), *final((0, 2), (1, 1))]),
    "a commit of who was fenced": (
        "fenced",
        [init("p", 1, 2), init("q", 3, 4, number=50), txn(1, instance=0, commit=5), *final((0, 1))],
    ),
    "an input without an output": ("input lost", [send(1, topic="in"), op("drained"), *final(more=IN_OUT[:1])]),
    "an input with two outputs": (
        "input twice",
        [send(1, topic="in"), transformed(11, 1), transformed(12, 1), *final(more=[*IN_OUT, ["out", 0, 1, 12]])],
    ),
    "an end that goes back": ("end back", [end_of(5, 1, 2), end_of(4, 3, 4), *final()]),
    "an end below what was acknowledged": ("end back", [send(1, at=5), end_of(5, 3, 4), *final((5, 1))]),
    "a group that is set back": (
        "committed back",
        [offsets("offsets", 3, 1, 2), offsets("offsets", 7, 3, 4), offsets("fetched", 3, 5, 6), *final()],
    ),
    "a group that forgot": ("committed back", [offsets("offsets", 7, 3, 4), offsets("fetched", -1, 5, 6), *final()]),
    "offsets of an aborted transaction": (
        "committed back",
        [
            offsets("offsets", 7, 3, 4),
            txn(1, outcome="fail", group="g", offsets={"t-0": 9}, inputs=[0]),
            offsets("fetched", 9, 7, 8),
            *final(also=((0, 1),)),
        ],
    ),
    "two transactions that read each other": (
        "G1c",
        [
            txn(1, process="p", reads=[["t", 0, 1, 2]]),
            txn(2, process="q", reads=[["t", 0, 0, 1]]),
            *final((0, 1), (1, 2)),
        ],
    ),
}

RIGHT: dict[str, list[Op]] = {
    "nothing": [],
    "what is unknown and there": [
        send(1, at=None, outcome="unknown"),
        txn(2, outcome="unknown"),
        *final((0, 1), (1, 2)),
    ],
    "what is unknown and not there": [send(1, at=None, outcome="unknown"), txn(2, 3, outcome="unknown"), *final()],
    "an aborted value in the sight of who reads everything": [
        txn(1, outcome="fail"),
        poll((0, 1), isolation=UNCOMMITTED),
        *final(also=((0, 1),)),
    ],
    "a commit whose answer came before the reader's": [txn(1), poll((0, 1)), *final((0, 1))],
    "two sessions from the beginning": [send(1), poll((0, 1)), poll((0, 1), session=2), *final((0, 1))],
    "a reader that went past an aborted record": [
        send(1),
        send(3, at=2),
        txn(2, outcome="fail"),
        poll((0, 1), (2, 3)),
        *final((0, 1), (2, 3), also=((1, 2),)),
    ],
    "a commit that was under way when the successor began": [
        init("p", 1, 2),
        init("q", 4, 7, number=50),
        txn(1, instance=0, commit=5, end=9),
        *final((0, 1)),
    ],
    "two producers that began at once": [
        init("p", 1, 3),
        init("q", 2, 3, number=50),
        txn(1, instance=0),
        *final((0, 1)),
    ],
    "each input its output": [
        send(1, topic="in"),
        transformed(11, 1),
        transformed(12, 1, outcome="fail"),
        op("drained"),
        *final(more=IN_OUT),
    ],
    "ends that were asked for at once": [end_of(5, 1, 4), end_of(4, 2, 3), *final()],
    "a group where an unknown commit took place late": [
        offsets("offsets", 3, 1, NEVER_NS, "unknown"),
        offsets("offsets", 7, 3, 4),
        offsets("fetched", 3, 5, 6),
        *final(),
    ],
    "a group that knows": [offsets("offsets", 3, 1, 2), offsets("offsets", 7, 3, 4), offsets("fetched", 7, 5, 6)],
    "one that read of the other": [
        txn(1, process="p"),
        txn(2, process="q", reads=[["t", 0, 0, 1]]),
        *final((0, 1), (1, 2)),
    ],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_violation_is_found_and_called_by_its_name(name: str) -> None:
    kind, ops = WRONG[name]
    assert {found.kind for found in violations(Facts(History(ops)))} == {kind}


@pytest.mark.parametrize("name", RIGHT)
def test_what_kafka_allows_is_no_violation(name: str) -> None:
    assert [*violations(Facts(History(RIGHT[name])))] == []


def test_every_check_has_a_history_in_which_it_fails() -> None:
    kinds = {kind for kind, _ in WRONG.values()}
    told = {word for check in _captions() for word in kinds if f"    {word}  " in check}
    assert told == kinds


def _captions() -> list[str]:
    from tests.broker.consistency import checker, cycles, fencing, offsets

    return [str(module.__doc__) for module in (checker, cycles, fencing, offsets)]


def test_transactions_that_interleave_are_counted_and_allowed() -> None:
    ops = [txn(1, 4, process="p"), txn(2, 3, process="q"), *final((0, 1), (1, 2), (2, 4), (3, 3))]
    facts = Facts(History(ops))
    assert [*violations(facts)] == []
    assert allowed(facts) == (1, 0)


def test_a_cycle_of_a_read_and_two_writes_is_counted_and_allowed() -> None:
    ops = [txn(1, process="p", reads=[["t", 0, 1, 2]]), txn(2, process="q"), *final((0, 1), (1, 2))]
    facts = Facts(History(ops))
    assert [*violations(facts)] == []
    assert allowed(facts) == (0, 1)


def test_a_violation_shows_the_operations_that_prove_it() -> None:
    (found,) = violations(Facts(History([send(1, 2), *final((0, 1))])))
    assert "2 in ('t', 0) was acknowledged and is not there" in str(found)
    assert '"writes":[["t",0,"k",1],["t",0,"k",2]]' in str(found)


def written(folder: Path, deed: Callable[[Writer], None]) -> list[Op]:
    deed(Writer(folder, "one"))
    return History.load(folder).ops


def test_a_history_comes_back_as_it_was_written(tmp_path: Path) -> None:
    def deed(writer: Writer) -> None:
        number = writer.begin("txn", writes=[["t", 0, "k", 1]])
        writer.committing(number)
        writer.end(number, "ok", results=[3])
        writer.begin("txn", writes=[])

    first, second = written(tmp_path, deed)
    assert (first.process, first.kind, first.outcome, first.fields) == (
        "one", "txn", "ok", {"writes": [["t", 0, "k", 1]], "results": [3]},
    )  # fmt: skip
    assert first.begin_ns < (first.commit_ns or 0) < first.end_ns < second.begin_ns
    assert (second.outcome, second.commit_ns, second.end_ns) == ("unknown", None, NEVER_NS)


def test_a_line_that_a_kill_tore_counts_as_not_written(tmp_path: Path) -> None:
    def deed(writer: Writer) -> None:
        writer.end(writer.begin("init"), "ok")
        path = tmp_path / "one.jsonl"
        path.write_bytes(path.read_bytes()[:-5])

    (only,) = written(tmp_path, deed)
    assert only.outcome == "unknown"

"""Which rows are removed, and when: no server is needed to say so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from waterclock.outbox.table import COLUMNS
from waterclock.outbox.taker import Removal


class Table:
    """What is there, as `OutboxTable` says it."""

    def __init__(self, *numbers: int) -> None:
        self.there, self.marks = set(numbers), list[str]()

    def numbers(self) -> set[int]:
        return set(self.there)

    def mark(self, text: str) -> None:
        self.marks.append(text)

    def remove(self, numbers: set[int]) -> None:
        self.there -= numbers


def inserted(number: int, relay: str = "delays", headers: str = "[]") -> Any:
    data = {**dict.fromkeys(COLUMNS), "number": number, "relay": relay, "headers": headers}
    return SimpleNamespace(type="insert", data=data, transaction="t")


def removal(table: Table, *polled: int) -> Removal:
    return Removal(table, polled)  # type: ignore[arg-type]


def test_a_row_that_the_log_has_not_brought_goes_with_the_mark_and_not_before() -> None:
    table = Table(1, 2)  # 1 was taken before the start
    made = removal(table)
    assert [row.number for row in made.new([inserted(2)], "delays")] == [2]
    made.done(())
    assert table.there == {1}
    assert made.new([inserted(3, "", table.marks[0])], "delays") == []
    made.done(())
    assert table.there == set()


def test_another_ones_mark_is_removed_and_says_nothing() -> None:
    table = Table(1)
    made = removal(table)
    made.new([inserted(2, "", "another")], "delays")
    made.done(())
    assert (table.there, made.passed) == ({1}, False)


def test_a_row_that_was_polled_is_removed_when_it_comes_and_not_taken() -> None:
    table = Table(1)
    made = removal(table, 1)
    assert made.new([inserted(1)], "delays") == []
    made.done(())
    assert table.there == set()


def test_a_row_that_stays_stays_when_the_mark_comes_later() -> None:
    table = Table(1)
    made = removal(table)
    made.done({1})
    made.new([inserted(2, "", table.marks[0])], "delays")
    made.done(())
    assert table.there == {1}


def test_a_change_that_is_no_insert_is_nothing() -> None:
    table = Table()
    change = SimpleNamespace(type="delete", data={"number": 1}, transaction="t")
    assert removal(table).new([change], "delays") == []  # type: ignore[list-item]


def test_a_row_that_somebody_updated_is_told_of_and_not_taken() -> None:
    """One that had been put aside, and was given back by an UPDATE, went with the mark: nobody had taken it."""
    table = Table(1)
    made = removal(table)
    change = SimpleNamespace(type="update", data={"number": 1, "relay": "delays"}, transaction="t")
    assert made.new([change], "delays") == []  # type: ignore[list-item]
    made.done(made.updated)
    made.new([inserted(2, "", table.marks[0])], "delays")
    made.done(())
    assert table.there == {1}

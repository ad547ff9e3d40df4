"""Which schema of a table is a new one, and which column is which of the former schema's."""

from __future__ import annotations

import pytest

from waterclock.cdc.mysql.alterations import altered_columns
from waterclock.cdc.schemas import ColumnsAltered, SchemaKeeper
from waterclock.changes.table_schema import ColumnSchema, SchemaHistory, TableSchema
from waterclock.errors import UsageError


def schema(since: int, *names: str, unsure: bool = False) -> TableSchema:
    columns = tuple(ColumnSchema(name, "int") for name in names)
    return TableSchema("mysql", "shop", "item", (since, 0), columns, (names[0],), unsure)


def numbers(found: TableSchema | None) -> dict[str, int]:
    assert found is not None
    return {column.name: column.number for column in found.columns}


def test_what_is_known_already_is_not_new() -> None:
    keeper = SchemaKeeper(SchemaHistory())
    first = keeper.new(schema(1, "id", "price"))
    assert numbers(first) == {"id": 1, "price": 2}
    assert keeper.new(schema(5, "id", "price")) is None
    assert first is not None
    assert SchemaKeeper(SchemaHistory([first])).new(schema(9, "id", "price")) is None


def test_a_renamed_column_keeps_its_number() -> None:
    keeper = SchemaKeeper(SchemaHistory())
    keeper.new(schema(1, "id", "price"))
    renamed = keeper.new(ColumnsAltered("shop", "item", (2, 0), {"price": "cost"}))
    assert numbers(renamed) == {"id": 1, "cost": 2}
    assert keeper.new(schema(3, "id", "cost")) is None


def test_two_columns_that_change_names_change_them() -> None:
    keeper = SchemaKeeper(SchemaHistory())
    keeper.new(schema(1, "id", "a", "b"))
    renamed = keeper.new(ColumnsAltered("shop", "item", (2, 0), {"a": "b", "b": "a"}))
    assert numbers(renamed) == {"id": 1, "b": 2, "a": 3}


def test_a_column_that_went_and_came_again_is_another_one() -> None:
    keeper = SchemaKeeper(SchemaHistory())
    for since, names in ((1, "ab"), (2, "a"), (3, "ab")):
        last = keeper.new(schema(since, *names))
    assert numbers(last) == {"a": 1, "b": 3}


@pytest.mark.parametrize(("names", "asked"), [("ac", True), ("abc", False), ("a", False)])
def test_a_rename_is_not_guessed_where_the_source_does_not_know(names: str, asked: bool) -> None:
    keeper = SchemaKeeper(SchemaHistory())
    keeper.new(schema(1, "a", "b"))
    found = keeper.new(schema(2, *names, unsure=True))
    assert found is not None
    assert found.unsure is asked


def test_a_schema_that_comes_a_second_time_is_passed_over() -> None:
    keeper = SchemaKeeper(SchemaHistory())
    for since, names in ((1, "ab"), (2, "a")):
        keeper.new(schema(since, *names))
    assert keeper.new(schema(1, "a", "b")) is None


def test_a_column_keeps_its_number_through_a_rename_and_its_former_name_has_another() -> None:
    keeper = SchemaKeeper(SchemaHistory())
    history = SchemaHistory(filter(None, (keeper.new(schema(1, "a", "b", "c")),)))
    for said in (ColumnsAltered("shop", "item", (2, 0), {"b": "z"}), schema(3, "a", "z", "b")):
        new = keeper.new(said)
        assert new is not None
        history.add(new)
    assert numbers(history.at("shop.item", (1, 7))) == {"a": 1, "b": 2, "c": 3}
    assert numbers(history.last("shop.item")) == {"a": 1, "z": 2, "b": 4}
    assert history.at("shop.item", (0, 0)) is None


@pytest.mark.parametrize("text", [None, b"", b"x", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "columns": [1]}'])
def test_what_no_capture_wrote_is_told(text: bytes | None) -> None:
    with pytest.raises(UsageError, match="is no table's schema"):
        TableSchema.parsed(text)


@pytest.mark.parametrize(
    ("added", "older", "is_known"),
    [
        ("int comment 'status, default 0'", None, True),
        ("int comment 'is not null later'", None, True),
        ("int not null comment 'default 7'", "0", True),
        ("varchar(9) comment 'default 7' default 'it''s'", "it's", True),
        ("int after `default`", None, True),
        ("int check (c is not null or d <> 'default 5')", None, True),
        ("int default (5 + 1)", None, False),
        ("int default (5 div 2)", None, False),
        ("int default ( 5 ) check (c > 4)", "5", True),
        ("int generated always as (d is not null) virtual", None, False),
        ("enum('New','old') default 'New'", "New", True),
        ("enum('New','old') default 'NEW'", None, False),
        ("decimal(9,2) default 0.125", None, False),
        ("serial", None, False),
        ("timestamp", None, False),
        ("timestamp(6) null", None, True),
    ],
)
def test_what_a_new_column_has_in_older_rows_no_comment_says(added: str, older: str | None, is_known: bool) -> None:
    """A comment's word, or an expression's first number, was taken for the DEFAULT, and a target filled with it."""
    (column,) = altered_columns(f"alter table t add column c {added}, add index (d)").added
    assert (column.older, column.older_known) == (older, is_known)


@pytest.mark.parametrize(
    ("clauses", "found"),
    [
        ("rename column PRICE to cost", {"id": 1, "cost": 2}),
        ("change `Price` cost bigint", {"id": 1, "cost": 2}),
        ("rename column price to PRICE", {"id": 1, "PRICE": 2}),
        ("add column if not exists Price int", {"id": 1, "price": 2}),
        ("drop column if exists PRICE", {"id": 1}),
        ("drop `price`, add price int default 7", {"id": 1, "price": 3}),
        ("drop index price, drop primary key, drop constraint price, drop partition price", {"id": 1, "price": 2}),
        ("drop primary key, drop id", {"id": 1, "price": 2}),  # another key: the next table map has it
    ],
)
def test_a_column_is_known_in_other_capitals_and_one_that_is_made_anew_is_another(
    clauses: str, found: dict[str, int]
) -> None:
    """A target kept the values of a column that went in the one of its name that came; and lost those of one that was
    renamed in other capitals than it has."""
    keeper = SchemaKeeper(SchemaHistory())
    keeper.new(schema(1, "id", "price"))
    said = altered_columns(f"alter table item {clauses}")
    altered = keeper.new(ColumnsAltered("shop", "item", (2, 0), said.renamed, said.added, said.doubted, said.dropped))
    assert (numbers(altered) if altered else {"id": 1, "price": 2}) == found

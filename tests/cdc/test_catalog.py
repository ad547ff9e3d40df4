"""What the catalog says of a column is what the log says of it: else a snapshot's row has another value than the log's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.catalog import ServerCatalog, TableDefinition, labels_of
from waterclock.cdc.mysql.columns import BinlogColumn, reader
from waterclock.cdc.mysql.fetched import SelectedRows
from waterclock.cdc.mysql.selected import selected
from waterclock.cdc.mysql.sql_types import mapped_type
from waterclock.cdc.mysql.tablemap import TableMap
from waterclock.cdc.mysql.tables import TablePlan
from waterclock.changes.maxwell import quoted


class Asked:
    """A cursor that has these answers, by a word of the question."""

    def __init__(self, answers: dict[str, Sequence[Sequence[Any]]]) -> None:
        self._answers, self._found = answers, list[Sequence[Any]]()

    def execute(self, query: str, arguments: tuple[Any, ...] = ()) -> None:
        self._found = [row for word, rows in self._answers.items() if word in query for row in rows]

    def fetchall(self) -> list[Sequence[Any]]:
        return self._found


def test_a_text_whose_check_is_json_valid_is_json_where_the_log_may_take_it_for_that() -> None:
    """ALTER TABLE ... CONVERT TO CHARACTER SET leaves the check, and gives it another collation: the log has a text, and
    a snapshot brought JSON."""
    checks = [["json_valid(`doc`)"], ["json_valid(`other`)"], ["`n` > 0"]]
    more = [["doc", 1, 1, "doc longtext utf8mb4_bin"], ["other", 0, 0, "other longtext utf8mb4_general_ci"]]
    asked = Asked({"check_clause": checks, "collation_name = 'utf8mb4_bin'": more, "'PRIMARY'": [["other"]]})
    found = ServerCatalog(asked, True).declared("shop", "item")
    assert (found.json, found.unsure, found.nullable) == ({"doc"}, {"doc"}, {"doc"})
    assert (found.key, found.order) == (("other",), "other longtext utf8mb4_general_ci")


@pytest.mark.parametrize("is_unsure", [True, False])
def test_what_the_user_says_of_a_column_counts_where_the_log_does_not_say_it(is_unsure: bool) -> None:
    """Of a VARCHAR, or of MySQL, the log takes no --type: a snapshot took it."""
    columns: list[tuple[str, str, str, str | None, str]] = [("c", "longtext", "longtext", "utf8mb4", "")]
    definition = TableDefinition(columns, ("c",), 0, frozenset(), frozenset({"c"} if is_unsure else ()))
    table = selected(("shop", "item"), definition, {"shop.item.c": "json"})
    assert table.columns[0].write(b"[1]") == ("[1]" if is_unsure else '"[1]"')
    assert table.types["c"].text == ("json" if is_unsure else "longtext")


def test_a_snapshot_has_the_schema_that_the_log_has() -> None:
    """Else each of the two would be a new one, again and again."""
    definition = TableDefinition(
        [("id", "int", "int(10) unsigned", None, ""), ("p", "decimal", "decimal(10,2)", None, ""),
         ("c", "varchar", "varchar(20)", "utf8mb4", ""), ("b", "varbinary", "varbinary(9)", None, ""),
         ("e", "enum", "enum('a','b')", "latin1", ""), ("j", "longtext", "longtext", "utf8mb4", ""),
         ("t", "timestamp", "timestamp(3)", None, "")],
        ("id",), 7, frozenset({"j"}), frozenset({"j"}), frozenset({"c", "j", "t"}),
    )  # fmt: skip
    of_log = [
        BinlogColumn("id", types.LONG, 0, True), BinlogColumn("p", types.NEWDECIMAL, 10 << 8 | 2),
        BinlogColumn("c", types.VARCHAR, 80, charset="utf8mb4"), BinlogColumn("b", types.VARCHAR, 9),
        BinlogColumn("e", types.ENUM, 1, charset="latin1", labels=("a", "b")),
        BinlogColumn("j", types.BLOB, 4, charset="utf8mb4", declared="json"), BinlogColumn("t", types.TIMESTAMP2, 3),
    ]  # fmt: skip
    kinds = tuple(column.type for column in of_log)
    plan = TablePlan(TableMap("shop", "item", kinds, kinds, {}, b"\x64"), of_log, ("id",))
    assert selected(("shop", "item"), definition, {}).schema() == plan.schema((0, 0))


LABELS = ("a", "it's", "a\\b", "a\nb\r\0", 'say "a"', "ä", "")
DECLARED = r"""('a','it''s','a\\b','a\nb\r\0','say "a"','ä','')"""


@pytest.mark.parametrize("kind", ["enum", "set"])
@pytest.mark.parametrize("charset", ["utf8mb4", None])
def test_labels_are_those_of_the_log_whatever_letters_they_have(kind: str, charset: str | None) -> None:
    """The server writes a backslash twice, and the end of a line as a backslash and an n."""
    assert labels_of(kind + DECLARED) == LABELS
    of_log = BinlogColumn("c", types.ENUM if kind == "enum" else types.SET, 1, labels=LABELS)
    assert mapped_type(of_log).text == kind + DECLARED
    columns = [("c", kind, kind + DECLARED, charset, "")]
    table = selected(("shop", "item"), TableDefinition(columns, ("c",), 0, frozenset()), {})
    for number, label in enumerate(LABELS):
        chosen = number + 1 if kind == "enum" else 1 << number
        shown = label.encode() if kind == "enum" else str(chosen).encode()
        wanted = reader(of_log)(bytes([chosen]), 0)[0]
        assert wanted == (quoted(label) if kind == "enum" else f"[{quoted(label)}]")
        assert table.columns[0].write(shown) == wanted
        packet = bytes([len(shown)]) + shown + b"\1k"
        data = bytearray(len(packet).to_bytes(3, "little") + b"\0" + packet)
        plain = SelectedRows([(shown, b"k")]) if table.compiled is None else SelectedRows(packets=data, end=len(data))
        assert plain.written(table)[0][0]["c"] == wanted

"""A mirrored table that a capture takes over from Debezium or Maxwell, and one whose writer turned back."""

from __future__ import annotations

import pytest

from tests.sinks.stores import MirroringStore
from tests.sinks.test_replica import give, items, opened
from waterclock.changes.row_change import RowChange
from waterclock.errors import UsageError

TURNED = r"a change of shop\.item came behind those of a capture of waterclock, and another program wrote it"
LSN, PLACE = (26_214_400,), (3, 154, 0)  # of Debezium: PostgreSQL's, MySQL's file and place and row
NOW = 1_790_000_000_000_000  # a capture's sequence: microseconds
Position = tuple[int, ...]
BEFORE = pytest.mark.parametrize("before", [LSN, PLACE], ids=["postgresql", "mysql"])


@pytest.fixture
def store(mirroring: MirroringStore) -> MirroringStore:
    return mirroring


def change(operation: str, key: int, position: Position, name: str | None = None) -> RowChange:
    values = {} if operation == "delete" else {"id": key, **({} if name is None else {"name": name})}
    return RowChange("shop.item", operation, {"id": key}, position, values)


def truncate(position: Position) -> RowChange:
    return RowChange("shop.item", "truncate", {}, position, {})


@BEFORE
def test_a_capture_goes_on_with_the_rows_of_another_writer(store: MirroringStore, before: Position) -> None:
    with opened(store) as sink:
        give(sink, 0, *(change("insert", key, before, "old") for key in range(1, 6)))
        give(
            sink,
            1,
            change("update", 1, (NOW, 0), "new"),
            change("delete", 2, (NOW, 1)),
            change("insert", 6, (NOW, 2), "new"),
            change("update", 3, (NOW, 3)),  # brings no name
        )
        give(sink, 2, change("update", 4, (*before[:-1], before[-1] + 1), "late"), change("delete", 5, (NOW + 1, 0)))
    assert items(store) == [(1, "new"), (3, "old"), (4, "late"), (6, "new")]


@BEFORE
def test_both_may_come_in_one_batch_as_they_do_where_a_pipeline_starts_over(
    store: MirroringStore, before: Position
) -> None:
    with opened(store) as sink:
        give(
            sink,
            0,
            *(change("insert", key, before, "old") for key in (1, 2, 3)),
            change("update", 1, (NOW, 0), "new"),
            change("update", 2, (NOW, 1)),
            change("delete", 3, (NOW, 2)),
        )
    assert items(store) == [(1, "new"), (2, "old")]


@BEFORE
def test_a_captures_truncate_ends_the_rows_of_the_other_writer(store: MirroringStore, before: Position) -> None:
    with opened(store) as sink:
        give(sink, 0, change("insert", 1, before, "old"), change("insert", 2, before, "old"))
        give(sink, 1, truncate((NOW, 0)), change("insert", 2, (NOW, 1), "new"))
    assert items(store) == [(2, "new")]


@BEFORE
@pytest.mark.parametrize("operation", ["update", "insert", "delete"])
def test_a_writer_that_comes_back_is_never_passed_over_as_older(
    store: MirroringStore, before: Position, operation: str
) -> None:
    later = (*before[:-1], before[-1] + 1)
    back = change(operation, 1, later, "back")
    with opened(store) as sink:
        with pytest.raises(UsageError, match=TURNED):  # in one batch
            give(sink, 0, change("insert", 1, before, "old"), change("update", 1, (NOW, 0), "new"), back)
        give(sink, 0, change("insert", 1, before, "old"), change("insert", 2, before, "old"))
        give(sink, 1, change("update", 1, (NOW, 0), "new"))
        with pytest.raises(UsageError, match=TURNED):
            give(sink, 2, change("update", 2, later, "back"), back)
        with pytest.raises(UsageError, match=TURNED):
            give(sink, 2, truncate(later))
    assert items(store) == [(1, "new"), (2, "old")]


@BEFORE
def test_nor_is_it_behind_a_captures_truncate(store: MirroringStore, before: Position) -> None:
    with opened(store) as sink:
        give(sink, 0, truncate((NOW, 0)))
        with pytest.raises(UsageError, match=TURNED):
            give(sink, 1, change("insert", 1, before, "back"))
        give(sink, 1, change("insert", 1, (NOW, 1), "new"))
    assert items(store) == [(1, "new")]


def test_the_places_of_two_other_writers_are_refused_behind_a_capture_too(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, change("insert", 1, LSN, "old"))
        give(sink, 1, change("insert", 2, (NOW, 0), "new"))
        with pytest.raises(UsageError, match="in two ways"):
            give(sink, 2, change("insert", 3, LSN, "old"), change("insert", 4, PLACE, "old"))
    assert items(store) == [(1, "old"), (2, "new")]


def test_the_way_out_that_is_named_is_one(store: MirroringStore) -> None:
    """One writer's changes alone, and the tables emptied, as --fresh does."""
    with opened(store) as sink:
        give(sink, 0, change("insert", 1, (NOW, 0), "new"))
        with pytest.raises(UsageError, match="into topics of its own, read those, and start over with --fresh"):
            give(sink, 1, change("update", 1, LSN, "back"))
        sink.remove()
    with opened(store) as sink:
        give(sink, 0, change("insert", 1, LSN, "back"))
    assert items(store) == [(1, "back")]

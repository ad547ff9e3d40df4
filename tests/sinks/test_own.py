"""A user's own object as a sink: five verbs keep the promise of every sink, and fewer are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.five_verbs import FiveVerbs
from tests.sinks.stores import COUNTERS, SCHEMA, batch
from waterclock.errors import CommitUnknown, SinkLost, StateMismatch
from waterclock.sinks import LastBatch, SQLiteSink, apply_once, check_belongs
from waterclock.sinks.base import VERBS, sink_of


@pytest.fixture
def own(tmp_path: Path) -> Iterator[FiveVerbs]:
    made = FiveVerbs(tmp_path / "own.db")
    yield made
    made.finish()


def of(*batch_ids: int) -> list[tuple[Any, ...]]:
    return [(i, "event", f"{i}-{n}") for i in batch_ids for n in range(2)]


def test_a_batch_is_applied_once_and_the_run_is_counted(own: FiveVerbs) -> None:
    sink = sink_of(own)
    sink.open(SCHEMA)
    assert [apply_once(sink, batch(0)) for _ in range(3)] == [True, False, False]
    assert [apply_once(sink, batch(1)), apply_once(sink, batch(0))] == [True, False]
    assert own.rows() == of(0, 1)
    assert sink.last_applied() == LastBatch("q", 1)
    assert sink.totals() == {name: 2 * count for name, count in COUNTERS.items()}
    assert sink.describe() == "the sink FiveVerbs"
    sink.close()


def test_what_is_rolled_back_leaves_nothing_and_is_not_counted(own: FiveVerbs) -> None:
    sink = sink_of(own)
    sink.begin()
    sink.write(batch(0))
    sink.rollback()
    assert (own.rows(), sink.last_applied(), sink.totals()) == ([], None, {})
    assert apply_once(sink, batch(0)) is True
    assert (own.rows(), sink.totals()) == (of(0), COUNTERS)


@pytest.mark.parametrize(("error", "through"), [(SinkLost, False), (CommitUnknown, False), (CommitUnknown, True)])
def test_a_connection_that_is_lost_at_the_commit_is_tried_once_more(
    own: FiveVerbs, error: type[Exception], through: bool
) -> None:
    commit, tries = own.commit, iter([True, False])

    def lost() -> None:
        commit() if through else own.rollback()
        raise error("gone")

    own.commit = lambda: lost() if next(tries) else commit()  # type: ignore[method-assign]
    sink = sink_of(own)
    assert apply_once(sink, batch(0)) is True
    assert own.rows() == of(0)


def test_a_checkpoint_that_is_not_its_own_is_refused(own: FiveVerbs) -> None:
    sink = sink_of(own)
    apply_once(sink, batch(0))
    with pytest.raises(
        StateMismatch, match=r"the sink FiveVerbs holds results up to batch 0 of query q, .* was deleted"
    ):
        check_belongs(sink, "cp", None, None)
    with pytest.raises(StateMismatch, match="another pipeline began to write there"):
        apply_once(sink, batch(0, "other"))


def test_what_the_object_has_beyond_the_five_verbs_is_used() -> None:
    class More:
        opened: Any = None

        def open(self, schema: Any) -> None:
            self.opened = schema

        def describe(self) -> str:
            return "the table mine"

        def totals(self) -> dict[str, int]:
            return {"events": 7}

        def begin(self) -> None: ...

        write = commit = rollback = begin

        def last_applied(self) -> LastBatch:
            return LastBatch("q", 3)

        def is_applied(self, query_id: str, batch_id: int) -> bool:
            return batch_id == 1

    sink = sink_of(more := More())
    sink.open(SCHEMA)
    assert more.opened == SCHEMA
    assert (sink.describe(), sink.totals(), sink.last_applied()) == ("the table mine", {"events": 7}, LastBatch("q", 3))
    assert [sink.is_applied("q", number) for number in (0, 1)] == [False, True]


def test_a_whole_sink_is_taken_as_it_is(tmp_path: Path) -> None:
    whole = SQLiteSink(tmp_path / "a.db")
    assert sink_of(whole) is whole
    whole.close()


@pytest.mark.parametrize("verb", VERBS)
def test_an_object_that_lacks_one_of_the_five_verbs_is_refused(verb: str) -> None:
    some = type("Some", (), {name: lambda self: None for name in VERBS if name != verb})
    with pytest.raises(TypeError, match=rf"a sink needs the verbs .*: Some lacks {verb}\. docs/pipeline-api\.md"):
        sink_of(some())

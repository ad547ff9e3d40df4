"""--fresh that is killed, wherever it stands: the same command again removes the rest, and nothing is left."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.sinks.stores import SCHEMA, DeltaStore, TopicStore, batch
from tests.sinks.test_replica import give, insert
from waterclock.changes.packed import CHANGES
from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.sinks import Replica, apply_once
from waterclock.sinks.delta.destination import remove_folder
from waterclock.testing import Broker


def dying(after: int, work: Any) -> Any:
    """`work`, but a kill in the place of the call of that number."""
    calls = itertools.count()

    def call(*arguments: Any, **more: Any) -> Any:
        if next(calls) == after:
            raise KeyboardInterrupt
        return work(*arguments, **more)

    return call


@pytest.mark.parametrize("mirror", [None, Replica()], ids=["results", "changes"])
def test_a_table_in_delta_lake_of_which_some_files_are_gone_is_still_ours(
    tmp_path: Path, mirror: Replica | None
) -> None:
    """Its log may go first: what is left was taken for somebody else's."""
    for kill in itertools.count():
        store = DeltaStore(tmp_path / f"{kill}")
        with closing(store.sink("own", mirror)) as sink:
            sink.open(SCHEMA if mirror is None else CHANGES)
            if mirror is None:
                apply_once(sink, batch(0))
            else:
                give(sink, 0, insert(1, 1, name="a"))
            with patch("os.unlink", dying(kill, os.unlink)):
                try:
                    sink.remove()
                except KeyboardInterrupt:
                    with closing(store.sink("own", mirror)) as again:
                        again.remove()
                else:
                    break
        assert [*store.folder.glob("own*")] == []
    assert kill > 5


def test_of_topics_the_one_that_says_whose_they_are_goes_last(
    kafka_broker: Broker,
) -> None:
    """Kafka deletes several in any order."""
    store, remove = TopicStore(kafka_broker.bootstrap), Admin.remove

    def killed(admin: Admin, topics: Collection[str]) -> None:
        remove(admin, [*topics][-1:])
        raise KeyboardInterrupt

    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
        with patch.object(Admin, "remove", killed), pytest.raises(KeyboardInterrupt):
            sink.remove()
    with closing(store.sink()) as again:
        again.remove()
    assert store.tables() == []


def test_a_folder_that_only_has_the_name_of_what_a_removal_left_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / "results.waterclock-removed" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(UsageError, match=r"has other things in its folder \(thesis\.txt"):
        remove_folder(tmp_path / "results")
    assert mine.read_text() == "mine"

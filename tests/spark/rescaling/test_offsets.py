"""Where a new checkpoint's sources go on, and which batch of the sink it begins with; no session is started."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sinks.stores import SCHEMA, batch
from waterclock.errors import StateMismatch, UsageError
from waterclock.rules.model import Rules
from waterclock.sinks import LastBatch, SQLiteSink
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.checkpoint import state_files
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.rescaling.carry import Rescale, carry_offsets
from waterclock.streaming.checkpoint import refuse_in_each_other


def log(folder: Path, name: str, *lines: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(
        "\n".join(["v1", *(each if isinstance(each, str) else json.dumps(each) for each in lines)])
    )


def offsets(number: int, partitions: int) -> dict[str, Any]:
    return {"batchWatermarkMs": number * 10, "conf": {"spark.sql.shuffle.partitions": str(partitions)}}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Checkpoint, Checkpoint]:
    """One that has done batch 7 and begun batch 8, and one whose state has just been written."""
    old, new = tmp_path / "old", tmp_path / "new"
    for number in (7, 8):
        log(old / "offsets", str(number), offsets(number, 2), {"logOffset": number}, "-")
    log(old / "commits", "7", {"nextBatchWatermarkMs": 80})
    log(old / "sources" / "0", "8", {"path": "file:///in/8"})
    log(new / "offsets", "0", offsets(0, 64), {"logOffset": 0})
    log(new / "commits", "0", {"nextBatchWatermarkMs": 0})
    log(new / "sources" / "0", "0", {"path": "file:///new/parts/0"})
    (new / "offsets" / ".0.crc").write_text("of what stood there before")
    (new / "metadata").write_text(json.dumps({"id": "new"}))
    return Checkpoint(old), Checkpoint(new)


def test_the_sources_go_on_where_they_were_with_the_new_settings_of_state(pair: tuple[Checkpoint, Checkpoint]) -> None:
    old, new = pair
    carry_offsets(old, new, 7, 8)
    assert (new.last_done(), new.last_batch()) == (0, 1)
    assert (new.path / "commits" / "0").read_text() == 'v1\n{"nextBatchWatermarkMs": 80}'
    for number in (0, 1):
        version, settings, *sources = (new.path / "offsets" / str(number)).read_text().splitlines()
        assert (version, json.loads(settings)) == ("v1", offsets(7 + number, 64))
        assert (json.loads(sources[0]), sources[1]) == ({"logOffset": 7 + number}, "-")
    assert [file.name for file in (new.path / "sources" / "0").iterdir()] == ["8"]
    assert not (new.path / "offsets" / ".0.crc").exists()


def test_what_a_killed_try_left_goes_and_what_somebody_put_beside_it_is_told(
    pair: tuple[Checkpoint, Checkpoint],
) -> None:
    old, new = pair
    state_files.begin(new, old)
    session: Any = SimpleNamespace(conf={})
    again = Rescale(session, old, new, Rules("key", "time"), 64, lambda told: None)
    again._refuse_other_things()
    (new.local / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other things \(precious.txt"):
        again._refuse_other_things()


@pytest.mark.parametrize("name", ["old", "old/inside", "new/../old/inside", "link/inside", "."])
def test_a_new_checkpoint_in_the_old_one_or_around_it_is_refused_however_it_is_named(
    pair: tuple[Checkpoint, Checkpoint], name: str
) -> None:
    """Whoever removes the old one then would remove both."""
    old, new = pair
    (new.local.with_name("link")).symlink_to(old.local)
    with pytest.raises(UsageError, match="lie in each other"):
        refuse_in_each_other(old.path, new.local.parent / name)
    refuse_in_each_other(old.path, new.path)


def test_a_log_of_another_version_is_not_carried_over(pair: tuple[Checkpoint, Checkpoint]) -> None:
    old, new = pair
    (old.path / "offsets" / "7").write_text("v2\n{}")
    with pytest.raises(UsageError, match="version 'v2' of Spark's logs"):
        carry_offsets(old, new, 7, 8)


def test_nothing_is_laid_into_a_folder_that_was_taken_over_meanwhile(
    pair: tuple[Checkpoint, Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = pair
    session, laid = SimpleNamespace(conf={}), list[str]()
    made = Rescale(cast(Any, session), old, new, Rules("key", "time"), 64, lambda told: None)
    monkeypatch.setattr(made._owner, "check", lambda: laid.append("checked"))
    monkeypatch.setattr(made, "lay_beside", lambda done: laid.append("laid") or ({}, 9))
    made.complete(7, 0)
    assert laid == ["checked", "laid"]


@pytest.mark.parametrize("cut", ["", "v1", 'v1\n{"batchWater'])
def test_a_log_that_was_cut_short_is_told_by_its_name(pair: tuple[Checkpoint, Checkpoint], cut: str) -> None:
    old, new = pair
    (old.local / "offsets" / "7").write_text(cut)
    with pytest.raises(StateMismatch, match=r"old/offsets/7 is damaged: .*Restore the checkpoint and the sink"):
        carry_offsets(old, new, 7, 8)


@pytest.mark.parametrize(("in_sink", "first"), [(7, 9), (8, 10)])
def test_a_batch_that_was_begun_is_done_where_the_sink_has_it(
    pair: tuple[Checkpoint, Checkpoint], in_sink: int, first: int
) -> None:
    old, new = pair
    carry_offsets(old, new, 7, 8)
    state_files.carried_from(new, old, 9, 0)
    number = state_files.number_of_handing_over(old, new, LastBatch("old", in_sink))
    assert number == first
    last, done = (state_files.number_in_sink(new, n) for n in (new.last_batch(), new.last_done()))
    assert (last, done) == (10, 9)  # so check_belongs takes both: the sink may lack the last one


def test_a_sink_that_lacks_a_batch_which_is_done_is_not_handed_over(
    pair: tuple[Checkpoint, Checkpoint], tmp_path: Path
) -> None:
    old, new = pair
    state_files.carried_from(new, old, 8, 100)
    (old.local / "metadata").write_text(json.dumps({"id": "old"}))
    outlets = Outlets(SQLiteSink(tmp_path / "out.db"))
    session: Any = None
    outlets.plan(None, SCHEMA)
    with closing(outlets):
        outlets.first.sink.open(SCHEMA)
        outlets.write(session, batch(6, "old"))
        with pytest.raises(StateMismatch, match=r"out\.db holds results up to batch 6 .* has done all batches up to 7"):
            outlets.hand_over(old, new)
        assert outlets.first.sink.last_applied() == LastBatch("old", 6)
        outlets.write(session, batch(7, "old"))
        before = outlets.first.sink.totals()
        outlets.hand_over(old, new)
        assert outlets.first.sink.last_applied() == LastBatch("new", 8)
        assert outlets.first.sink.totals()["state_bytes"] == before.get("state_bytes", 0) + 100


def test_the_sink_says_which_of_two_checkpoints_counts(pair: tuple[Checkpoint, Checkpoint]) -> None:
    old, new = pair
    state_files.begin(new, old)
    state_files.carried_over(old, new)
    state_files.refuse_handed_over(old, LastBatch("old", 8))
    with pytest.raises(StateMismatch, match="did not come to its end"):
        state_files.refuse_handed_over(new, LastBatch("old", 8))
    with pytest.raises(StateMismatch, match="was carried over to"):
        state_files.refuse_handed_over(old, LastBatch("new", 9))
    newer = Checkpoint(new.local.with_name("newer"))
    newer.local.mkdir()
    (newer.local / "metadata").write_text(json.dumps({"id": "newer"}))
    state_files.carried_over(new, newer)
    with pytest.raises(StateMismatch, match=f"{old.path} was carried over to {newer.path}"):
        state_files.refuse_handed_over(old, LastBatch("newer", 9))
    state_files.carried_over(newer, old)  # a copy of it that was put back
    state_files.refuse_handed_over(old, LastBatch("somebody's", 9))
    (new.path / state_files.PARTS).mkdir()
    state_files.refuse_handed_over(new, LastBatch("new", 9))
    assert not (new.path / state_files.CARRYING).exists()
    assert not (new.path / state_files.PARTS).exists()

"""A batch that is done and that the sink lacks is taken back, if a mark says that a run wrote beside Spark's next batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waterclock.spark.checkpoint import taken_back
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.taken_back import BESIDE, mark, take_back

STATE = ("5.changelog", "6.zip", "6_1b2c.zip", "7.changelog", "7.zip", "7_1b2c.zip")

TAKEN_BACK = {
    ".": [],
    "offsets": ["4", "5"],
    "commits": ["4"],
    "state": [],
    "state/0": [],
    "state/0/0": ["5.changelog"],
    "state/0/1": ["5.changelog"],
    "state/0/_metadata": ["v2"],
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Batch 5 is done, 6 is planned, and its state is stored, as version 7."""
    made = Checkpoint(tmp_path / "checkpoint")
    for folder, names in {
        "offsets": ("4", "5", "6"),
        "commits": ("4", "5"),
        "state/0/0": STATE,
        "state/0/1": STATE,
        "state/0/_metadata": ("v2",),
    }.items():
        (made.local / folder).mkdir(parents=True)
        for name in names:
            (made.local / folder / name).touch()
            (made.local / folder / f".{name}.crc").touch()
    mark(made)
    return made


def left(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """What is there, by its folder, without Java's sums, each of which must be beside its file."""
    found = {}
    for folder, _, names in os.walk(checkpoint.local):
        plain = sorted(name for name in names if not name.startswith("."))
        sums = {name for name in names if name.startswith(".")}
        assert sums == ({f".{name}.crc" for name in plain} if sums else set())
        found[str(Path(folder).relative_to(checkpoint.local))] = plain
    return found


def test_the_plan_and_the_state_behind_the_batch_go_and_the_note_of_it(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    take_back(checkpoint, held=4)
    assert left(checkpoint) == TAKEN_BACK
    assert "batch 5, which Spark has done" in caplog.text


@pytest.mark.parametrize("held", [3, -1], ids=["two batches behind", "empty"])
def test_a_sink_that_lacks_more_than_the_last_one_is_left_to_be_refused(checkpoint: Checkpoint, held: int) -> None:
    before = left(checkpoint)
    take_back(checkpoint, held)
    assert left(checkpoint) == before
    assert BESIDE in before["."]


@pytest.mark.parametrize("batch", [0, 5])
def test_a_batch_whose_plan_is_gone_is_left_to_be_refused(checkpoint: Checkpoint, batch: int) -> None:
    for folder in ("offsets", "commits"):
        for name in os.listdir(checkpoint.local / folder):
            (checkpoint.local / folder / name).unlink()
    (checkpoint.local / "commits" / str(batch)).touch()
    before = left(checkpoint)
    take_back(checkpoint, held=batch - 1)
    assert left(checkpoint) == before


def test_without_the_mark_nothing_is_taken_back(checkpoint: Checkpoint) -> None:
    (checkpoint.local / BESIDE).unlink()
    before = left(checkpoint)
    take_back(checkpoint, held=4)
    assert left(checkpoint) == before


@pytest.mark.parametrize("held", [5, 6], ids=["all that is done", "the one that was begun too"])
def test_if_the_sink_has_them_all_the_mark_alone_goes(checkpoint: Checkpoint, held: int) -> None:
    before = left(checkpoint)
    take_back(checkpoint, held)
    assert left(checkpoint) == {**before, ".": []}


def test_the_first_batch_is_taken_back_too(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for name in ("offsets/0", "offsets/1", "commits/0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    mark(checkpoint)
    take_back(checkpoint, held=-1)
    assert left(checkpoint) == {".": [], "offsets": ["0"], "commits": []}


@pytest.mark.parametrize("removed", range(25))
def test_cut_short_anywhere_it_is_done_at_the_next_start(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    with monkeypatch.context() as patched:
        count, remove = iter(range(100)), taken_back.remove

        def dying(place: Path) -> None:
            if next(count) == removed:
                raise KeyboardInterrupt
            remove(place)

        patched.setattr(taken_back, "remove", dying)
        with pytest.raises(KeyboardInterrupt):
            take_back(checkpoint, held=4)
    # never a plan behind one that Spark would pass over: it runs the last one that is planned
    planned, done = checkpoint.last_batch(), checkpoint.last_done()
    assert (planned, done) in {(6, 5), (5, 5), (5, 4)}
    take_back(checkpoint, held=4)
    assert left(checkpoint) == TAKEN_BACK

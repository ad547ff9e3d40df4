"""Whose a checkpoint is: one run's at a time, one pipeline's, and nobody else removes it. No session is started."""

from __future__ import annotations

import errno
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.spark.least_pipeline import LEAST
from waterclock.errors import StateMismatch, UsageError
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.owner import LOCK, Owner
from waterclock.streaming.toml.config import Config, load

HOLD = """
import sys
from pathlib import Path
from waterclock.streaming.owner import Owner
owner = Owner(Path(sys.argv[1]))
owner.take()
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    return load(tmp_path / "p.toml")


def test_a_second_run_of_a_pipeline_is_refused_until_the_first_is_closed(config: Config) -> None:
    # Spark noticed it sometimes, in its own words, and said that the same command goes on
    with closing(configured(config)) as first, closing(configured(config)) as second:
        first.check()
        first.check()
        with pytest.raises(UsageError, match=r"another run has the checkpoint .*/p-checkpoint open: wait"):
            second.check()
        first.close()
        second.check()


def test_what_a_run_works_on_is_not_removed_from_under_it(config: Config) -> None:
    with closing(configured(config)) as pipeline:
        pipeline.check()
        with pytest.raises(UsageError, match="another run has the checkpoint"):
            start_over(config)
    assert (config.checkpoint / "waterclock.json").exists()
    start_over(config)
    assert not config.checkpoint.exists()


def sharing(config: Config, tmp_path: Path) -> Config:
    """Another pipeline with the same checkpoint, behind the first one's three batches."""
    with closing(configured(config)) as pipeline:
        pipeline.check()
    (config.checkpoint / "metadata").write_text('{"id": "q"}')  # type: ignore[union-attr]
    (config.checkpoint / "commits").mkdir()  # type: ignore[union-attr]
    (config.checkpoint / "commits" / "3").write_text("v1\n{}\n")  # type: ignore[union-attr]
    (tmp_path / "q.toml").write_text(f'pipeline.checkpoint = "p-checkpoint"\n{LEAST.replace("out.db", "other.db")}')
    return load(tmp_path / "q.toml")


def test_the_checkpoint_of_another_pipeline_is_not_removed(config: Config, tmp_path: Path) -> None:
    # two files without a name of their own shared one: the second was refused, told to take --fresh, and took the first's
    other = sharing(config, tmp_path)
    with pytest.raises(
        UsageError, match=r"is that of the pipeline with the table 'results' in .*/out\.db, so it is not removed"
    ):
        start_over(other)
    assert (config.checkpoint / "waterclock.json").exists()
    start_over(config)
    start_over(other)


def test_two_pipelines_with_one_checkpoint_are_named_as_the_cause_and_the_remedy_works(
    config: Config, tmp_path: Path
) -> None:
    # "the table ... holds no results, but the checkpoint has done all batches up to 3: restore the sink as it was"
    with closing(configured(sharing(config, tmp_path))) as pipeline, pytest.raises(StateMismatch) as refused:
        pipeline.check()
    told = str(refused.value)
    assert told.startswith(f"the checkpoint {config.checkpoint} is that of the pipeline with the table 'results' in ")
    advice = next(part for part in told.split(":") if part.lstrip().startswith("write "))
    line = advice.partition("write ")[2].partition(" below")[0]
    (tmp_path / "q.toml").write_text(f"[pipeline]\n{line}\n{LEAST.replace('out.db', 'other.db')}")
    with closing(configured(load(tmp_path / "q.toml"))) as pipeline:
        pipeline.check()


def test_a_sink_that_comes_later_is_refused_and_fresh_is_the_way_out_as_it_says(config: Config, tmp_path: Path) -> None:
    # --fresh took the checkpoint for another pipeline's
    sharing(config, tmp_path)
    (tmp_path / "p.toml").write_text(LEAST.replace("[sink]", '[[sink]]\npath = "new.db"\n[[sink]]'))
    both = load(tmp_path / "p.toml")
    with closing(configured(both)) as pipeline, pytest.raises(StateMismatch, match=r"new\.db holds no.*run --fresh"):
        pipeline.check()
    start_over(both)
    with closing(configured(both)) as pipeline:
        pipeline.check()


def test_a_removal_that_is_refused_keeps_nobody_waiting(config: Config, tmp_path: Path) -> None:
    # behind a URI its lease stayed until it ran out
    with closing(configured(config)) as pipeline:
        pipeline.check()
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.executescript("drop table results; create table results (n);")
    for _ in range(2):
        with pytest.raises(UsageError, match="is none that waterclock made"):
            start_over(config)


def test_a_sink_that_lost_its_results_is_told_so_as_before(config: Config, tmp_path: Path) -> None:
    sharing(config, tmp_path)
    with closing(configured(config)) as pipeline, pytest.raises(StateMismatch, match="holds no results, but"):
        pipeline.check()


def test_two_files_in_one_folder_have_a_checkpoint_each(config: Config, tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(LEAST.replace("out.db", "other.db"))
    for each in (config, load(tmp_path / "q.toml")):
        with closing(configured(each)) as pipeline:
            pipeline.check()
    assert sorted(path.name for path in tmp_path.glob("*-checkpoint")) == ["p-checkpoint", "q-checkpoint"]


def test_a_file_goes_on_with_the_checkpoint_of_when_all_had_one_name(config: Config, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(f'pipeline.name = "pipeline"\n{LEAST}')
    with closing(configured(load(tmp_path / "old.toml"))) as pipeline:
        pipeline.check()
    (tmp_path / "q.toml").write_text(LEAST.replace("out.db", "other.db"))
    assert load(tmp_path / "p.toml").checkpoint == tmp_path / "pipeline-checkpoint"
    assert load(tmp_path / "q.toml").checkpoint == tmp_path / "q-checkpoint"
    tmp_path.rename(moved := tmp_path.with_name("moved-too"))
    assert load(moved / "p.toml").checkpoint == moved / "pipeline-checkpoint"
    (moved / "p-checkpoint").mkdir()
    assert load(moved / "p.toml").checkpoint == moved / "p-checkpoint"


@pytest.mark.parametrize("name", ["my pipeline.toml", "a.b.toml", "pipeline.toml"])
def test_a_file_whose_name_is_not_plain_has_the_checkpoint_of_all(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / name).write_text(LEAST)
    assert load(tmp_path / name).checkpoint == tmp_path / "pipeline-checkpoint"


def test_a_pipeline_that_was_moved_with_its_sink_may_start_over(config: Config, tmp_path: Path) -> None:
    with closing(configured(config)) as pipeline:
        pipeline.check()
    tmp_path.rename(tmp_path.with_name("moved"))
    moved = load(tmp_path.with_name("moved") / "p.toml")
    start_over(moved)
    assert not moved.checkpoint.exists()


def test_a_process_that_was_killed_holds_nobody_off(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match="another run"):
            Owner(tmp_path).take()
        other.kill()
    owner = Owner(tmp_path)
    owner.take()
    owner.let_go()


def test_a_file_system_without_locks_gives_the_checkpoint_to_everybody(tmp_path: Path) -> None:
    with patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
        for owner in (Owner(tmp_path), Owner(tmp_path)):
            owner.take()
            owner.let_go()


def test_a_lock_that_went_with_its_folder_is_taken_anew(tmp_path: Path) -> None:
    owner, other = Owner(tmp_path / "cp"), Owner(tmp_path / "cp")
    owner.take()  # nothing is there to be taken
    (tmp_path / "cp").mkdir()
    owner.take()
    (tmp_path / "cp" / LOCK).unlink()
    owner.take()
    with pytest.raises(UsageError, match="another run"):
        other.take()
    owner.let_go()

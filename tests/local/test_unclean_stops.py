"""What a power cut or a broken disk leaves of the checkpoint's files: each is whole again, or told with its remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.local.running import driven, run_locally
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.errors import StateMismatch, UsageError
from waterclock.local.command import configured, start_over
from waterclock.local.snapshots import NAME, Snapshots, Written
from waterclock.sinks.sqlite.sqlite import SQLiteSink
from waterclock.streaming.checkpoint import MARK, OVER
from waterclock.streaming.state.bucket import StoredBucket
from waterclock.streaming.toml.config import load

DAMAGES: dict[str, Callable[[Path], object]] = {
    "of no length": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "of zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "of anything": lambda file: file.write_bytes(b"\xff" * max(100, file.stat().st_size)),
    "gone": lambda file: file.unlink(),
}
MADE_ANEW = (NAME, f"{NAME}-wal", f"{NAME}-shm", "waterclock.lock")
TOLD = ("waterclock.json", "waterclock.sink")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Any, ...]]]:
    """Pipelines killed behind their second and behind their fifth batch, in one folder; and what one has in the end."""
    folder = tmp_path_factory.mktemp("killed")
    peace = make_pipeline(folder / "peace", orders(40), 6)
    run_locally(peace)
    file = make_pipeline(folder / "at work", orders(40), 6)
    assert driven(file, "committed", 2) is None
    shutil.copytree(file.parent, folder / "early")
    assert driven(file, "committed", 3) is None
    shutil.copytree(file.parent, folder / "late")
    return folder, table(peace.parent)


@pytest.fixture
def file(killed: tuple[Path, list[tuple[Any, ...]]]) -> Path:
    """The one that was killed late, where it ran."""
    folder, _ = killed
    shutil.rmtree(folder / "at work")
    shutil.copytree(folder / "late", folder / "at work")
    return folder / "at work" / "pipeline.toml"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", MADE_ANEW)
def test_a_file_that_is_made_of_the_log_is_made_anew(
    file: Path, killed: tuple[Path, list[tuple[Any, ...]]], name: str, damage: str
) -> None:
    DAMAGES[damage](file.parent / "checkpoint" / name)
    run_locally(file)
    assert table(file.parent) == killed[1] != []


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "gone"])
@pytest.mark.parametrize("name", TOLD)
def test_a_note_that_is_damaged_is_told_and_the_remedy_mends_it(
    file: Path, killed: tuple[Path, list[tuple[Any, ...]]], name: str, damage: str
) -> None:
    whole = (file.parent / "checkpoint" / name).read_bytes()
    DAMAGES[damage](file.parent / "checkpoint" / name)
    with pytest.raises(StateMismatch, match=rf"{name} is damaged.*--fresh|is that of the pipeline with"):
        run_locally(file)
    (file.parent / "checkpoint" / name).write_bytes(whole)  # from a copy
    run_locally(file)
    assert table(file.parent) == killed[1] != []


@pytest.mark.parametrize("name", TOLD)
def test_a_note_that_is_gone_is_made_anew(file: Path, killed: tuple[Path, list[tuple[Any, ...]]], name: str) -> None:
    (file.parent / "checkpoint" / name).unlink()
    run_locally(file)
    assert table(file.parent) == killed[1] != []


@pytest.mark.parametrize("name", TOLD)
def test_a_damaged_note_can_be_started_over(file: Path, killed: tuple[Path, list[tuple[Any, ...]]], name: str) -> None:
    (note := file.parent / "checkpoint" / name).write_bytes(b"")
    with pytest.raises(StateMismatch, match="--fresh") as told:
        run_locally(file)
    if "remove the file" in str(told.value):  # whose it is, nobody knows
        with pytest.raises(StateMismatch, match="remove the file"):
            start_over(load(file))
        note.unlink()
    start_over(load(file))
    run_locally(file)
    assert table(file.parent) == killed[1] != []


@pytest.mark.parametrize("older", ["checkpoint", "out.db", "state"])
def test_what_is_older_than_the_rest_gets_what_it_lacks(
    file: Path, killed: tuple[Path, list[tuple[Any, ...]]], older: str
) -> None:
    early, here = killed[0] / "early", file.parent
    names = {"checkpoint": MADE_ANEW[:3] + TOLD, "state": MADE_ANEW[:3], "out.db": ()}[older]
    for name in names:
        (here / "checkpoint" / name).unlink()
        shutil.copy(early / "checkpoint" / name, here / "checkpoint" / name)
    if older == "out.db":
        (here / "out.db").unlink()
        shutil.copy(early / "out.db", here / "out.db")
    run_locally(file)
    assert table(here) == killed[1] != []


# What is flushed (snapshots.py, rule 4)


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Snapshots, list[str]]:
    """A file of snapshots, and how each of its transactions was made durable."""
    told: list[str] = []
    snapshots = Snapshots(tmp_path / NAME)
    snapshots._db.set_trace_callback(
        lambda text: told.append(text) if text.startswith(("PRAGMA syn", "COMMIT")) else None
    )
    return snapshots, told


def test_a_snapshot_is_flushed_where_the_log_is_forgotten_behind_it(flushes: tuple[Snapshots, list[str]]) -> None:
    snapshots, told = flushes
    written = [Written(0, 3, StoredBucket(b"engine", b"rows"), {}, frozenset(), 0)]
    snapshots.write("query", written)
    snapshots.write("query", written, lasts=True)
    snapshots.forget_others("query", 2)
    snapshots.write("query", written)
    modes = [text.partition("=")[2] for text in told if text.startswith("PRAGMA")]
    assert modes == ["NORMAL", "FULL", "FULL", "NORMAL"]
    assert told.count("COMMIT") == 4
    snapshots.close()


def test_a_pipeline_runs_again_and_not_behind_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # of what a failed run had taken the next one of the same object knew, and passed over it
    file = make_pipeline(tmp_path, orders(8), 2)
    with closing(configured(load(file))) as pipeline:
        pipeline.end()
        assert pipeline.run(live=True).events == 0
        with monkeypatch.context() as patch:
            patch.setattr(SQLiteSink, "commit", lambda sink: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                pipeline.run()  # which nobody has ended
        with pytest.raises(UsageError, match="the last run failed: close this pipeline, and make another"):
            pipeline.run()
    assert not table(file.parent)
    run_locally(file)
    assert table(file.parent)


@pytest.mark.parametrize("name", [*TOLD, OVER, MARK])
def test_what_a_kill_leaves_of_a_note_goes_with_the_checkpoint(file: Path, name: str) -> None:
    # it was another thing in the folder, so that --fresh was refused
    (file.parent / "checkpoint" / f".{name}.new").touch()
    start_over(load(file))
    assert not (file.parent / "checkpoint").exists()


def test_what_a_kill_leaves_of_the_first_note_can_be_started_over(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(8), 2)
    (tmp_path / "checkpoint").mkdir()
    for name in ("waterclock.lock", ".waterclock.sink.new"):
        (tmp_path / "checkpoint" / name).touch()
    start_over(load(file))
    assert run_locally(file).batches > 2

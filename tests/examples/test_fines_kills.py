"""The main job with its driver killed: what is compared, when it is killed, and that the tables stay equal."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import store_of
from tests.sinks.stores import SCHEMA, Database, Store, batch
from waterclock.clock import SystemClock
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.examples.fines.grounds import Ground, empty
from waterclock.examples.fines.kills import Life, compare, fingerprint, first_difference, moments, print_at_once
from waterclock.examples.fines.tables import PostgresTables, SQLiteTables, Tables
from waterclock.sinks import Batch, apply_once
from waterclock.streaming.toml.config import load

OFFSETS = 'v1\n{"batchTimestampMs":5}\n{"fines": {"0": 5}}\n{"logOffset":0}'

# What is compared


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A place that the example reads."""
    return store_of(request, tmp_path)


@pytest.fixture
def dump(store: Store) -> Callable[[Batch], list[str]]:
    """The dump of a table of one batch, new each time."""

    def dump(made: Batch) -> list[str]:
        sink = store.sink()
        sink.open(SCHEMA)
        sink.remove()
        sink.open(SCHEMA)
        apply_once(sink, made)
        sink.close()
        return list(_tables(store).dump())

    return dump


def _tables(store: Any) -> Tables:
    if hasattr(store, "path"):
        return SQLiteTables(store.path)
    return PostgresTables(store.server.url(), store.schema)


FIRST = replace(batch(0, count=3), offsets=OFFSETS)


def test_a_dump_has_a_line_for_each_row_in_the_order_in_which_they_were_written(
    dump: Callable[[Batch], list[str]],
) -> None:
    lines = dump(FIRST)[-6:]  # before them are the tables' columns
    assert lines.pop(4) == "(1,)"  # the number of queries
    assert [line.index(f"r0-{number}") > 0 for number, line in enumerate(lines[:3])] == [True] * 3
    assert "bad" in lines[3]
    assert ('{"fines": {"0": 5}}' in lines[4], "batchTimestampMs" in lines[4]) == (True, False)


def test_a_dump_leaves_out_how_long_a_batch_took_and_when_it_was(dump: Callable[[Batch], list[str]]) -> None:
    slower = replace(FIRST, seconds=9.0, offsets=OFFSETS.replace("5}\n", "6}\n", 1))
    assert dump(slower) == dump(FIRST)


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, results=FIRST.results.slice(1)),
        replace(FIRST, results=FIRST.results.take([1, 0, 2])),
        replace(FIRST, dead_letters=FIRST.dead_letters.slice(1)),
        replace(FIRST, counters={"events": 3, "late": 1}),
        replace(FIRST, watermark_us=1_000_001),
        replace(FIRST, offsets=OFFSETS.replace('"0": 5', '"0": 6')),
        replace(FIRST, offsets=OFFSETS.replace('"logOffset":0', '"logOffset":1')),
        replace(FIRST, batch_id=1),
    ],
    ids=["a row less", "another order", "a dead letter", "a counter", "the watermark", "offsets", "close", "number"],
)
def test_any_other_difference_is_in_the_dump(dump: Callable[[Batch], list[str]], other: Batch) -> None:
    assert dump(other) != dump(FIRST)


def test_a_table_too_many_is_in_the_dump(store: Store, dump: Callable[[Batch], list[str]]) -> None:
    lines = dump(FIRST)
    store.make_table_of_others("left_over")
    assert [line for line in _tables(store).dump() if line not in lines]


def test_a_run_that_lost_its_name_is_in_the_dump(store: Store) -> None:
    """What was applied is known by the query's name and the batch's number: with a second name it would be again."""
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, FIRST)
        one = list(_tables(store).dump())
        apply_once(sink, replace(FIRST, query_id="other", batch_id=1))
    assert [line for line in one if line not in list(_tables(store).dump())] == ["(1,)"]


def test_the_place_where_two_dumps_part_is_told() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == (
        "NOT equal: row 2 of the run without kills is b, of the killed one c"
    )
    assert str(first_difference(["a"], ["a", "b"])).endswith(
        "row 2 of the run without kills is None, of the killed one b"
    )
    assert str(first_difference(["a", "b"], ["a"])).endswith(
        "row 2 of the run without kills is b, of the killed one None"
    )


def test_the_fingerprint_is_of_every_line_in_order() -> None:
    assert fingerprint(["a", "b"])[0] == 2
    assert len({fingerprint(lines)[1] for lines in (["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""])}) == 4


# When it is killed


def test_moments_rise_and_spare_the_last_two_batches() -> None:
    found = moments(random.Random(1), 12, 500)
    assert found == sorted(found)
    assert (int(found[0]), int(found[-1]), len(found)) == (0, 9, 500)


def test_the_same_seed_kills_at_the_same_moments_and_another_one_at_others() -> None:
    assert moments(random.Random(7), 20, 5) == moments(random.Random(7), 20, 5)
    assert moments(random.Random(8), 20, 5) != moments(random.Random(7), 20, 5)


@pytest.fixture
def broken(tmp_path: Path) -> Ground:
    """A ground whose driver ends at once: its pipeline has no sink to write to."""
    return Ground(tmp_path, "localhost:1", lambda name: "[sink]\n", lambda name: SQLiteTables(tmp_path / "none"))


def test_a_driver_that_fails_is_told_with_its_log(broken: Ground) -> None:
    with (
        Life(broken, "untouched", SystemClock()) as life,
        pytest.raises(WaterclockError, match=r"the driver ended with 2; its last words are in .*driver\.log"),
    ):
        life.to_the_end()
    assert "[sink]: 'path' is missing" in (broken.folder("untouched") / "driver.log").read_text()


def test_a_driver_that_ends_before_its_kill_is_no_kill(broken: Ground) -> None:
    with (
        Life(broken, "untouched", SystemClock()) as measure,
        Life(broken, "killed", SystemClock()) as life,
        pytest.raises(WaterclockError, match="the driver ended before it was to be killed"),
    ):
        life.kill_at(3.5, measure)


class Ending:
    """A driver that ends by itself just when it is to be killed."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def poll(self) -> None:
        """It still runs, when it is asked; then it ends."""
        self._real.wait()


def test_a_driver_that_ends_between_the_last_look_and_the_kill_is_no_kill(broken: Ground) -> None:
    with Life(broken, "untouched", SystemClock()) as measure, Life(broken, "killed", SystemClock()) as life:
        life._process = Ending(life._process)  # type: ignore[assignment]
        with pytest.raises(WaterclockError, match="the driver ended before the kill reached it"):
            life.kill_at(-1.0, measure)


# The runs


def test_the_pipeline_that_is_killed_is_the_main_jobs_but_for_its_broker_batches_and_sink(tmp_path: Path) -> None:
    (tmp_path / "shipped.toml").write_text((files("waterclock.examples.fines") / "pipeline.toml").read_text())
    shipped = load(tmp_path / "shipped.toml")
    ground = Ground(
        tmp_path, "localhost:1", lambda name: '[sink]\npath = "x.db"\n', lambda name: SQLiteTables(tmp_path)
    )
    made = load(ground.file("killed"))
    assert made.source == replace(shipped.source, servers="localhost:1", per_batch=2500)
    assert (made.rules, made.watermark_delay_us) == (shipped.rules, shipped.watermark_delay_us)
    assert (made.sink.path, made.checkpoint.parent) == (tmp_path / "killed" / "x.db", tmp_path / "killed")


def test_only_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    for name in ("untouched", "killed", "broker", "kafka", "mine"):
        (tmp_path / "kills" / name).mkdir(parents=True)
    empty(tmp_path / "kills")
    assert [path.name for path in (tmp_path / "kills").iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be used .*: name another with --folder"):
        empty(tmp_path / "file" / "kills")


# All of it


@pytest.mark.spark
@pytest.mark.long(seconds=200)
@pytest.mark.parametrize("on", ["own", pytest.param("servers", marks=pytest.mark.servers)])
def test_five_kills_at_random_moments_leave_the_tables_of_a_run_without_any(
    tmp_path: Path, campaign_seed: int, on: str
) -> None:
    try:
        outcome = compare(tmp_path, on, 5, campaign_seed % 1_000_000, print_at_once)
    except EnvironmentMissing as error:
        pytest.skip(str(error))
    print(outcome)
    assert (outcome.equal, outcome.right, outcome.kills) == (True, True, 5)

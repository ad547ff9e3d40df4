"""What a pipeline tells of itself, gathered batch by batch under a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from tests.spark.least_pipeline import LEAST
from tests.web.reading import read_back
from waterclock.clock import ManualClock
from waterclock.letters import LETTERS, SHOWN, LetterStatistics
from waterclock.rules.engine import CLOSED
from waterclock.sinks import Batch
from waterclock.spark.pipeline import configured
from waterclock.streaming import frames
from waterclock.streaming.statistics import Gatherer, HeldStatistics, Phase, PipelineStatistics, prometheus
from waterclock.streaming.toml.config import load

HOUR_US = 3_600_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gathering(clock: ManualClock) -> Gatherer:
    made = Gatherer("orders", clock)
    made.holds({"events": 100})
    made.begin()
    return made


def took(gathering: Gatherer, batch_id: int, events: int, results: int = 0, **times: int) -> None:
    counted = {"events": events, "results": results}
    moments = (times.get("watermark"), times.get("newest"))
    gathering.took(batch_id, counted, {"events": 100 + events}, moments, {"sink": 0.25})


def unknown(totals: Mapping[str, int] | None) -> None:
    """How far behind its source a pipeline is."""


def progress(**ms: int) -> Any:
    state = SimpleNamespace(numRowsTotal=16, memoryUsedBytes=2_000)
    return SimpleNamespace(durationMs=ms, stateOperators=[state])


def test_before_the_first_batch_what_is_not_known_is_none() -> None:
    seen = Gatherer("orders", ManualClock()).seen("files", unknown)
    assert (seen.watermark_us, seen.newest_us, seen.behind_newest_s, seen.behind_now_s) == (None,) * 4
    assert (seen.batch_id, seen.state_rows, seen.behind, seen.events_per_second) == (None, None, None, None)


def test_totals_begin_with_what_the_sink_holds_and_batches_with_the_run(gathering: Gatherer) -> None:
    assert (gathering.seen("files", unknown).events, gathering.seen("files", unknown).batches) == (100, 0)
    took(gathering, 7, 5)
    seen = gathering.seen("files", unknown)
    assert (seen.events, seen.batches, seen.batch_id) == (105, 1, 7)


def test_the_last_dead_letters_are_kept_the_newest_first_and_no_more_than_so_many(
    gathering: Gatherer, clock: ManualClock
) -> None:
    def put_aside(batch_id: int, *lines: int | None) -> None:
        rows = [
            {"file": "a.jsonl", "line": n, "reason": f"bad {n}", "text": None if n is None else "x" * n} for n in lines
        ]
        dead = pa.Table.from_pylist(rows, frames.DEAD_SCHEMA)
        gathering.took(batch_id, {}, {}, (None, None), {}, dead=dead)

    put_aside(0, *range(50))
    put_aside(1, 90, None)
    put_aside(2)
    letters = gathering.seen("files", unknown).letters
    assert len(letters) == LETTERS
    assert letters[0] == LetterStatistics("a.jsonl", clock.wall_ms(), "bad None", "")
    assert letters[1] == LetterStatistics("a.jsonl 90", clock.wall_ms(), "bad 90", f"{'x' * 79}…")
    assert [one.place for one in letters[2:]] == [f"a.jsonl {n}" for n in range(49, 31, -1)]


def test_the_held_keys_of_a_bucket_are_those_that_its_last_frame_says(gathering: Gatherer) -> None:
    def said(*each: Mapping[str, Any] | None) -> list[tuple[str, int]]:
        gathering.took(0, {}, {}, (None, None), {}, held=each)
        return [(one.key, one.events) for one in gathering.seen("files", unknown).held_keys]

    assert said({"3": [["a", 2, 7, None]]}, None, {"8": [[12, 5, None, 9]]}) == [("12", 5), ("a", 2)]
    assert said({"3": [["a", 9, 7, None]]}, {"3": []}) == [("12", 5)]
    assert said() == [("12", 5)]
    keys = [[f"{n}" * 200, n, 1, None] for n in range(30)]
    many = said({"3": keys})
    assert [n for _, n in many] == list(range(29, 9, -1))
    assert len(many[0][0]) == SHOWN


def test_what_is_hidden_of_a_pipeline_is_keys_and_values() -> None:
    held = HeldStatistics("ann@example.org", 4, 7, 9)
    letter = LetterStatistics("a.jsonl 7", 1, "it is no JSON: 'ann'", "ann")
    seen = PipelineStatistics("orders", letters=(letter,), held_keys=(held,)).hidden()
    assert (seen.held_keys, seen.letters) == ((HeldStatistics("hidden 1", 4, 7, 9),), (letter.hidden(),))
    assert "ann" not in str(seen)


def test_a_batch_that_ends_while_the_source_is_asked_is_in_none_of_the_figures(gathering: Gatherer) -> None:
    def asked(totals: Mapping[str, int] | None) -> Mapping[str, int] | None:
        took(gathering, 0, 5, watermark=7)
        return {"": 105 - (totals or {})["events"]}

    seen = gathering.seen("files", asked)
    assert (seen.events, seen.behind, seen.batches, seen.watermark_us) == (100, {"": 5}, 0, None)
    seen = gathering.seen("files", lambda totals: {"": 105 - (totals or {})["events"]})
    assert (seen.events, seen.behind, seen.batches, seen.watermark_us) == (105, {"": 0}, 1, 7)


def test_a_rate_is_over_the_time_since_the_start_and_over_the_last_minute_later(
    gathering: Gatherer, clock: ManualClock
) -> None:
    clock.advance_s(10)
    took(gathering, 0, 100, 50)
    assert gathering.seen("files", unknown).events_per_second == 10.0
    assert gathering.seen("files", unknown).results_per_second == 5.0
    clock.advance_s(50)
    took(gathering, 1, 20)
    assert gathering.seen("files", unknown).events_per_second == 2.0
    clock.advance_s(10)  # the first batch is a minute old
    assert gathering.seen("files", unknown).events_per_second == 20 / 60


def test_a_minute_of_many_small_batches_is_kept_as_few_moments_and_gives_the_same_rate(
    gathering: Gatherer, clock: ManualClock
) -> None:
    for number in range(6_000):
        took(gathering, number, events=2, results=1)
        clock.advance_s(0.01)
    seen = gathering.seen("records", unknown)
    assert seen.events_per_second == pytest.approx(200, rel=0.01)
    assert seen.results_per_second == pytest.approx(100, rel=0.01)
    assert len(gathering._taken.recent) <= 121


def test_a_rate_falls_to_nothing_while_nothing_comes(gathering: Gatherer, clock: ManualClock) -> None:
    clock.advance_s(1)
    took(gathering, 0, 100)
    clock.advance_s(60)
    assert gathering.seen("files", unknown).events_per_second == 0.0


def test_the_watermark_lags_behind_the_newest_event_and_behind_now(gathering: Gatherer, clock: ManualClock) -> None:
    now_us = clock.wall_ms() * 1000
    took(gathering, 0, 1, watermark=now_us - 3 * HOUR_US, newest=now_us - HOUR_US)
    assert gathering.seen("files", unknown).behind_newest_s == 7200.0
    assert gathering.seen("files", unknown).behind_now_s == 10_800.0
    clock.advance_s(60)  # nothing comes: behind the newest event it stays, behind now it grows
    assert gathering.seen("files", unknown).behind_newest_s == 7200.0
    assert gathering.seen("files", unknown).behind_now_s == 10_860.0


def test_times_never_go_back(gathering: Gatherer) -> None:
    took(gathering, 0, 1, watermark=5, newest=9)
    took(gathering, 1, 1, newest=7)
    took(gathering, 2, 1, watermark=4)
    seen = gathering.seen("files", unknown)
    assert (seen.watermark_us, seen.newest_us) == (5, 9)


def test_after_the_close_nothing_is_behind(gathering: Gatherer) -> None:
    took(gathering, 0, 1, watermark=CLOSED, newest=9)
    seen = gathering.seen("files", unknown)
    assert (seen.behind_newest_s, seen.behind_now_s) == (0.0, 0.0)


def test_phases_are_added_up_ours_and_sparks(gathering: Gatherer) -> None:
    took(gathering, 0, 1)
    took(gathering, 1, 1)
    gathering.heard(progress(addBatch=1500, walCommit=40))
    phases = gathering.seen("files", unknown).phases
    assert phases == {
        "addBatch": Phase(1.5, 1.5, 1), "walCommit": Phase(0.04, 0.04, 1), "sink": Phase(0.25, 0.5, 2),
    }  # fmt: skip
    assert (gathering.seen("", unknown).state_rows, gathering.seen("", unknown).state_memory_bytes) == (16, 2_000)


def test_a_progress_without_state_leaves_the_state_as_it_was_known(gathering: Gatherer) -> None:
    gathering.heard(progress(addBatch=1))
    gathering.heard(SimpleNamespace(durationMs={}, stateOperators=[]))
    assert gathering.seen("files", unknown).state_rows == 16


def test_the_record_is_frozen_and_a_later_batch_does_not_change_it(gathering: Gatherer) -> None:
    took(gathering, 0, 5)
    before = gathering.seen("files", unknown)
    plain = asdict(before)
    with pytest.raises(FrozenInstanceError):
        before.batches = 9  # type: ignore[misc]
    took(gathering, 1, 5)
    assert asdict(before) == plain


# As Prometheus's text


def test_what_is_not_known_is_not_on_the_page() -> None:
    found = read_back(prometheus(PipelineStatistics("orders")))
    assert found == {"waterclock_batches": ("counter", [("waterclock_batches_total", {"pipeline": "orders"}, 0.0)])}


def test_what_the_sink_holds_is_known_before_spark_is_started(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "new.jsonl").touch()
    (tmp_path / "p.toml").write_text(LEAST)
    pipeline = configured(load(tmp_path / "p.toml"), sink := Holding())
    assert (pipeline.statistics().totals, pipeline.statistics().behind) == (None, None)
    sink.held = {"events": 100, "files": 1}
    pipeline.check()
    assert (pipeline.statistics().events, pipeline.statistics().behind) == (100, {"": 0})
    pipeline.close()


class Holding(MagicMock):
    """A sink that holds something, and no batch of any query."""

    held: dict[str, int]

    def last_applied(self) -> None:
        return None

    def totals(self) -> dict[str, int]:
        return self.held


class PuttingAside(Holding):
    """A sink that keeps no result."""

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        return False

    def write(self, batch: Batch) -> Batch:
        return replace(batch, counters={**batch.counters, "results": 0, "dead_letters": 1})


def test_the_totals_are_of_what_the_sink_wrote_and_not_of_what_it_was_given(tmp_path: Path) -> None:
    # what a sink puts aside was counted as a result until the next start
    (tmp_path / "p.toml").write_text(LEAST)
    pipeline = configured(load(tmp_path / "p.toml"), PuttingAside())
    folder = load(tmp_path / "p.toml").checkpoint
    folder.mkdir()
    (folder / "metadata").write_text('{"id": "q"}')
    result = frames.with_counters(pa.table({"kind": ["event"]}), {"events": 1})
    taken = pa.table({"frame": pa.array([frames.to_bytes(result)], pa.binary())})
    pipeline._report, pipeline._last_moment = None, 0.0
    pipeline._take(MagicMock(toArrow=lambda: taken), 0)
    assert pipeline.statistics().totals == {"events": 1, "results": 0, "dead_letters": 1}

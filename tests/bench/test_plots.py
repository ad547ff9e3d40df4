"""The pictures of `waterclock bench`: drawn from a record alone, names that do not touch, a file that is there."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from waterclock.bench import plots

SIZES = (1_000, 1_000_000)
NAMES = [*plots.OURS, *plots.OTHERS]
PNG = b"\x89PNG\r\n\x1a\n"


def timers(costs: dict[str, float], sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    ns = {name: {verb: dict.fromkeys(sizes, cost) for verb in plots.ABOUT} for name, cost in costs.items()}
    found = {"benchmark": "timers", "machine": "a machine", "figures": {"ns": ns, "pending": list(sizes)}}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_a_picture_is_drawn_from_a_record_that_was_read_back(tmp_path: Path) -> None:
    assert plots.draw(timers({name: 10.0 * n for n, name in enumerate(NAMES, 1)}), tmp_path / "timers.png")
    assert (tmp_path / "timers.png").read_bytes().startswith(PNG)


def test_a_picture_has_a_panel_a_verb_and_each_line_its_name() -> None:
    costs = {"waterclock, compiled": 50.0, "asyncio call_later": 500.0, "Kafka SystemTimer": 200.0}
    figure = plots._verbs(timers(costs | {"Kafka SystemTimer, all threads": 300.0})["figures"])
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes] == list(plots.ABOUT.values())
    for axes in figure.axes:
        assert {text.get_text() for text in axes.texts} == {"waterclock", "Kafka", "asyncio"}
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_who_was_measured_at_one_size_stands_below() -> None:
    record = timers({"waterclock, compiled": 50.0, "sched": 500.0})
    for by_size in record["figures"]["ns"]["sched"].values():
        del by_size["1000000"]
    figure = plots._verbs(record["figures"])
    assert "at one size only, see the table: sched" in texts(figure)
    assert "sched" not in [text.get_text() for axes in figure.axes for text in axes.texts]


def test_one_size_alone_is_a_picture_too(tmp_path: Path) -> None:
    assert plots.draw(timers({"waterclock, compiled": 50.0}, (1_000,)), tmp_path / "one.png")


@pytest.mark.parametrize("heights", [[], [0.5], [0.1, 0.2, 0.9], [0.5] * 5, [0.0, 0.01, 0.5, 0.505, 0.51, 1.0]])
def test_names_are_moved_apart_and_keep_their_order(heights: list[float]) -> None:
    moved = plots._apart(heights)
    assert len(moved) == len(heights)
    assert all(above - below > plots.GAP - 1e-9 for below, above in pairwise(moved))


def test_names_that_do_not_touch_stay_where_they_are() -> None:
    assert plots._apart([0.1, 0.2, 0.9]) == pytest.approx([0.1, 0.2, 0.9])


def test_the_picture_of_the_purgatory_shows_the_loads_and_what_was_not_held(tmp_path: Path) -> None:
    rates = [
        {"contender": who, "keys": keys, "p50_ms": p50_ms, "rate": rate, "cpu_us": 5.0, "held": rate < 2_000} | share
        for who in ("waterclock", "Kafka")
        for keys in ("shared", "own")
        for p50_ms, share in ((20, {"expected": 0.08}), (200, {"expected": 0.5}))
        for rate in (1_000, 2_000)
    ]
    figure = plots._rates(rates)
    lines = [f"{who}, {share} expire" for who in ("waterclock", "Kafka") for share in ("50%", "8%")]
    assert [text.get_text() for text in figure.axes[1].texts] == lines
    hollow = [line for line in figure.axes[1].lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[2_000]] * 4
    record = {"benchmark": "purgatory", "machine": "a machine", "figures": {"rates": rates}}
    assert plots.draw(record, tmp_path / "purgatory.png")


def test_the_pipelines_bars_stand_in_the_order_of_the_table_ours_in_our_colour(tmp_path: Path) -> None:
    speeds = {"waterclock: order": 30_000, "rows a key: order": 7_000, "no rules: read and write": 90_000}
    figures = [
        {"contender": name, "rows_a_batch": size, "rows_per_second": speed}
        for size in (2_000, 40_000)
        for name, speed in speeds.items()
    ]
    figure = plots._pipeline(figures)
    assert [axes.get_title() for axes in figure.axes] == [f"rows a second, batches of {n} rows" for n in ("2k", "40k")]
    for axes in figure.axes:
        assert [bar.get_width() for bar in axes.patches] == list(speeds.values())[::-1]
        assert [bar.get_facecolor() == axes.patches[-1].get_facecolor() for bar in axes.patches] == [False, False, True]
    record = {"benchmark": "pipeline", "machine": "a machine", "figures": {"by_hand": figures}}
    assert plots.draw(record, tmp_path / "pipeline.png")


def test_no_figure_under_the_pipelines_bars_covers_the_next_one() -> None:
    names = ("waterclock: order, deliver, expect", "no rules: read and write")
    speeds = ((40_000, 72_860, 190_024), (175_000, 158_371, 287_592))
    figures = [
        {"contender": name, "rows_a_batch": size, "rows_per_second": speed}
        for size, *both in speeds
        for name, speed in zip(names, both, strict=True)
    ]
    with plots.mpl.rc_context(plots.STYLE):
        figure = plots._pipeline(figures)
        figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_record_without_figures_has_no_picture(tmp_path: Path) -> None:
    assert not plots.draw(
        {"benchmark": "pipeline", "machine": "", "figures": {"by_hand": []}}, tmp_path / "pipeline.png"
    )
    assert list(tmp_path.iterdir()) == []

"""A command's statistics as Prometheus's text, read back by Prometheus's own parser; and as JSON: what is not known is
null, and no record is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.web.reading import read_back
from waterclock import __version__
from waterclock.web.record import Metric, Sample, plain, text, to_json


def test_prometheus_reads_back_what_was_written() -> None:
    page = text(
        [
            Metric("waterclock_events_total", "counter", "Events.", (Sample(12, {"pipeline": "a"}), Sample(0.5))),
            Metric(
                "waterclock_phase_seconds", "summary", "Phases.", (Sample(1.25, {}, "_sum"), Sample(3, {}, "_count"))
            ),
            Metric("waterclock_held_events", "gauge", "Held.", (Sample(-7),)),
        ]
    )
    assert read_back(page) == {
        "waterclock_events": (
            "counter",
            [("waterclock_events_total", {"pipeline": "a"}, 12.0), ("waterclock_events_total", {}, 0.5)],
        ),
        "waterclock_phase_seconds": (
            "summary",
            [("waterclock_phase_seconds_sum", {}, 1.25), ("waterclock_phase_seconds_count", {}, 3.0)],
        ),
        "waterclock_held_events": ("gauge", [("waterclock_held_events", {}, -7.0)]),
    }


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "a\\nb", 'a\\"b', "", "{}", "é 🕰", "#", " "])
def test_a_label_of_any_text_comes_back_as_it_was(value: str) -> None:
    page = text([Metric("waterclock_x", "gauge", 'a "help"\nof \\ any text', (Sample(1, {"name": value}),))])
    assert read_back(page)["waterclock_x"] == ("gauge", [("waterclock_x", {"name": value}, 1.0)])
    assert len(page.splitlines()) == 3


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**53, 0.1, 1e-9, 1e300, 1_767_225_600.000001, float("inf"), float("-inf")]
)
def test_a_number_comes_back_as_it_was(value: float) -> None:
    page = text([Metric("waterclock_x", "gauge", "x", (Sample(value),))])
    assert read_back(page)["waterclock_x"][1] == [("waterclock_x", {}, value)]


def test_a_metric_without_samples_is_left_out() -> None:
    assert text([Metric("waterclock_x", "gauge", "x", ())]) == ""


@pytest.mark.parametrize(
    ("name", "kind", "sample", "told"),
    [
        ("events_total", "counter", Sample(1), "waterclock_"),
        ("waterclock_Events_total", "counter", Sample(1), "lower case"),
        ("waterclock_events", "counter", Sample(1), "_total"),
        ("waterclock_held_total", "gauge", Sample(1), "_total"),
        ("waterclock_x", "histogram", Sample(1), "kind"),
        ("waterclock_x", "gauge", Sample(1, {}, "_sum"), "ending"),
        ("waterclock_x", "summary", Sample(1), "ending"),
        ("waterclock_x", "gauge", Sample(1, {"a b": "c"}), "label"),
    ],
)
def test_a_metric_that_prometheus_would_not_take_is_refused_when_it_is_made(
    name: str, kind: str, sample: Sample, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        Metric(name, kind, "what", (sample,))


@dataclass(frozen=True, slots=True)
class Inner:
    ends: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    by_key: Mapping[Any, Inner]
    unknown: int | None = None


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def test_a_record_within_a_record_is_read_back_as_it_was() -> None:
    record = Outer(Inner(((1, 0.5),)), {"a": Inner(()), ("b", 2): Inner(((3, 4.0),))})
    found = json.loads(to_json("broker", record))
    assert found == {
        "command": "broker",
        "version": __version__,
        "statistics": {
            "inner": {"ends": [[1, 0.5]]},
            "by_key": {"a": {"ends": []}, "('b', 2)": {"ends": [[3, 4.0]]}},
            "unknown": None,
        },
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_is_null_at_any_depth(value: float) -> None:
    text = to_json("run", {"a": [value, (value,)], "b": Inner(((1, value),))})
    found = json.loads(text, parse_constant=refuse)
    assert found["statistics"] == {"a": [None, [None]], "b": {"ends": [[1, None]]}}


def test_truth_stays_truth_and_what_has_no_form_becomes_its_text() -> None:
    assert plain((True, b"k", "\udcff", {2})) == [True, "b'k'", "\udcff", [2]]
    assert json.loads(to_json("run", "\udcff"))["statistics"] == "\udcff"

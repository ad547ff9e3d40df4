"""Statistics as JSON: what is not known is null, and no record is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from waterclock import __version__
from waterclock.web.record import plain, to_json


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

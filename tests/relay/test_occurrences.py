"""When a series occurs next: zones, clocks that are put forward and back, expressions that nobody meant."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.occurrences import next_ms

BERLIN = "Europe/Berlin"


def occurrences(cron: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    """Of a series, from a moment on, each with its distance from UTC."""
    at_ms: int | None = int(datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    found = []
    for _ in range(count):
        assert at_ms is not None
        at_ms = next_ms(cron, zone, at_ms)
        assert at_ms is not None
        found.append(datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).strftime("%d %H:%M%z")[:-2])
    return found


def test_nine_oclock_stays_nine_oclock_when_clocks_are_put_forward() -> None:
    assert occurrences("0 9 * * *", "2026-03-28T00:00", 2) == ["28 09:00+01", "29 09:00+02"]


@pytest.mark.parametrize(
    ("cron", "hoped"),
    [
        ("30 2 * * *", ["28 02:30+01", "29 03:00+02", "30 02:30+02"]),  # right behind the hour that is left out
        ("0,30 2 * * *", ["28 02:00+01", "28 02:30+01", "29 03:00+02", "30 02:00+02"]),
        (
            "*/30 2 * * *",
            ["28 02:00+01", "28 02:30+01", "30 02:00+02"],
        ),  # by the time that passes: there is no such hour
    ],
)
def test_in_the_hour_that_is_left_out(cron: str, hoped: list[str]) -> None:
    assert occurrences(cron, "2026-03-28T00:00", len(hoped)) == hoped


@pytest.mark.parametrize(
    ("cron", "hoped"),
    [
        ("30 2 * * *", ["25 02:30+02", "26 02:30+01"]),  # the first time
        ("0,30 2 * * *", ["25 02:00+02", "25 02:30+02", "26 02:00+01"]),
        ("30 * * * *", ["25 00:30+02", "25 01:30+02", "25 02:30+02", "25 02:30+01", "25 03:30+01"]),
        ("*/30 2 * * *", ["25 02:00+02", "25 02:30+02", "25 02:00+01", "25 02:30+01", "26 02:00+01"]),
    ],
)
def test_in_the_hour_that_comes_twice(cron: str, hoped: list[str]) -> None:
    assert occurrences(cron, "2026-10-25T00:00", len(hoped)) == hoped


def test_asked_in_the_second_of_the_two_hours_it_does_not_answer_with_the_first() -> None:
    second_ms = int(datetime(2026, 10, 25, 2, 15, tzinfo=ZoneInfo(BERLIN), fold=1).timestamp() * 1000)
    found = next_ms("30 2 * * *", BERLIN, second_ms)
    assert found == int(datetime(2026, 10, 26, 2, 30, tzinfo=ZoneInfo(BERLIN)).timestamp() * 1000)


def test_what_never_occurs_is_told_by_none_or_refused() -> None:
    with pytest.raises(ValueError, match="bad day-of-month"):
        next_ms("0 0 31 2 *", "UTC", 0)
    assert next_ms("0 0 29 2 *", "UTC", 0) == int(datetime(1972, 2, 29, tzinfo=ZoneInfo("UTC")).timestamp() * 1000)


FIELD = st.text("0123456789*/,-#LWMON", min_size=1, max_size=5)


@given(st.lists(FIELD, min_size=4, max_size=6).map(" ".join), st.integers(0, 2**44))
def test_whatever_is_asked_the_answer_is_later_or_a_sentence(cron: str, after_ms: int) -> None:
    told, found = "", None
    try:
        found = next_ms(cron, BERLIN, after_ms)
    except ValueError as error:
        told = str(error)
    assert told.startswith("delay-cron must be") or found is None or found > after_ms

"""When a series occurs next: zones, clocks that are put forward and back, expressions that nobody meant."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.wire.cron import next_ms

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


IDLE_STEPS = [
    *("*/61 * * * *", "0 */25 * * *", "0 0 */32 * *", "0 0 1 */13 *", "0 0 * * */8"),  # every so many of fewer
    *("5-10/6 * * * *", "1,50/10 * * * *", "0 0 * * MON-WED/3"),  # one value of what is written
    *("1-1/5 * * * *", "1-1/1 * * * *"),  # the package goes on to 6, 11, 16
    *("0 0 L/5 * *", "0 0 LW/2 * *"),  # the package leaves the step out
]


@pytest.mark.parametrize("cron", IDLE_STEPS)
def test_a_step_that_leads_nowhere_is_refused(cron: str) -> None:
    """The story: */61 was taken, and was hourly."""
    with pytest.raises(ValueError, match="has a step that leads to no second value"):
        next_ms(cron, "UTC", 0)


STRANGE = [
    *("*/0 * * * *", "*/-1 * * * *", "*/ * * * *", "/5 * * * *", "*/5/2 * * * *", "*/1.5 * * * *"),
    *("10-5 * * * *", "* 23-1 * * *", "0 0 * * FRI-MON", "0 0 * DEC-JAN *", "1- * * * *", "-5 * * * *", "1--2 * * * *"),
    *("60 * * * *", "0 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 1 0 *", "0 0 1 13 *", "0 0 * * 8", "-1 * * * *"),
    *("MON * * * *", "0 0 MON * *", "0 0 1 MON *", "0 0 * * JAN", "0 0 * * MONDAY", "0 0 * JANUARY *", "0 0 L L *"),
    *("0 0 * * L", "0 0 * * FRIL", "0 0 * * MON#0", "0 0 * * MON#6", "0 0 * * *#2", "0 0 * * MON-FRI#2"),
    *(", * * * *", "1,, * * * *", "? * * * *", "@daily", "* * * *", "* * * * * *", "", "٣ * * * *", "1e1 * * * *"),
]


@pytest.mark.parametrize("cron", STRANGE)
def test_what_no_cron_would_read_is_refused(cron: str) -> None:
    with pytest.raises(ValueError, match="must be five fields such as"):
        next_ms(cron, "UTC", 0)


MEANT = {  # what is taken, and the first three it says from 1970 on, a Thursday
    "*/60 * * * *": ["01 01:00", "01 02:00", "01 03:00"],
    "*/45 * * * *": ["01 00:45", "01 01:00", "01 01:45"],
    "10/25 * * * *": ["01 00:10", "01 00:35", "01 01:10"],
    "5-10/5 * * * *": ["01 00:05", "01 00:10", "01 01:05"],
    "0 0 * * */7": ["04 00:00", "11 00:00", "18 00:00"],
    "0 0 * * 7": ["04 00:00", "11 00:00", "18 00:00"],
    "0 0 * * 5-7": ["02 00:00", "03 00:00", "04 00:00"],
    "0 0 * * mon-wed/2": ["05 00:00", "07 00:00", "12 00:00"],
    "007 0 * * *": ["01 00:07", "02 00:07", "03 00:07"],
}


@pytest.mark.parametrize("cron", MEANT)
def test_what_is_taken_means_what_is_written(cron: str) -> None:
    assert occurrences(cron, "1970-01-01T00:00", 3, "UTC") == [f"{moment}+00" for moment in MEANT[cron]]


FIELD = st.text("0123456789*/,-#LWMON", min_size=1, max_size=5)


@given(st.lists(FIELD, min_size=4, max_size=6).map(" ".join), st.integers(0, 2**44))
def test_whatever_is_asked_the_answer_is_later_or_a_sentence(cron: str, after_ms: int) -> None:
    told, found = "", None
    try:
        found = next_ms(cron, BERLIN, after_ms)
    except ValueError as error:
        told = str(error)
    assert told.startswith("delay-cron must be") or found is None or found > after_ms

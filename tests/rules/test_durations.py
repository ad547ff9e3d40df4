"""Durations and times: every spelling that is promised, and the wrong ones refused by the argument's name."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock import Rules
from waterclock.durations import datetime_us, duration_us, from_us


@pytest.mark.parametrize(
    ("given_as", "us"),
    [
        ("14 days", 1_209_600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("250 ms", 250_000),
        ("7us", 7),
        ("1w2d3h4min5s6ms7us", 788_645_006_007),
        ("1 week, 1 day", 691_200_000_000),
        ("  2 SECONDS  ", 2_000_000),
        ("1.5 hours", 5_400_000_000),
        ("0 s", 0),
        ("0", 0),
        (" 0 ", 0),
        ("1 sec", 1_000_000),
        (timedelta(days=-1, hours=25), 3_600_000_000),
        (timedelta(microseconds=1), 1),
        (0, 0),
        (3_600_000_000, 3_600_000_000),
    ],
)
def test_a_duration_is_read_as_it_is_written(given_as: Any, us: int) -> None:
    assert duration_us(given_as) == us


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "14", "days", "14 dayz", "1 month", "1 year", "1 m", "1 5 days", "1 day 5", "-1 day",
        "+1 day", "1e3 s", "1,5 hours", "1.5.5 days", "one day", "1 day & 2 hours", "1 day\x00", "inf s",
        "nan s", "½ day", ". 1 s",
    ],
)  # fmt: skip
def test_a_text_that_is_no_duration_is_refused_by_the_name_of_its_argument(text: str) -> None:
    with pytest.raises(ValueError, match=r"^wait must "):
        duration_us(text, "wait")


@pytest.mark.parametrize("value", [None, True, 1.5, b"1 day", ["1 day"], 1j, datetime(2020, 1, 1)])
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_argument(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^wait must be a duration"):
        duration_us(value, "wait")


@pytest.mark.parametrize("value", [-1, timedelta(microseconds=-1), -(10**30)])
def test_a_negative_duration_is_refused_by_the_name_of_its_argument(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^wait must not be negative"):
        duration_us(value, "wait")


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_duration_beyond_all_numbers_is_a_value_error_that_names_its_argument(digits: int) -> None:
    with pytest.raises(ValueError, match=r"^wait "):
        duration_us("9" * digits + " days", "wait")


@given(st.integers(0, 2**60))
def test_a_whole_number_of_microseconds_is_kept_to_the_last_digit(us: int) -> None:
    assert duration_us(f"{us} us") == us


@given(st.integers(0, 10**9), st.integers(0, 999_999))
def test_decimals_of_a_second_down_to_the_microsecond_are_exact(seconds: int, us: int) -> None:
    assert duration_us(f"{seconds}.{us:06} s") == seconds * 1_000_000 + us


@given(st.timedeltas(timedelta(0), timedelta(microseconds=2**60)))
def test_a_timedelta_is_exact(delta: timedelta) -> None:
    assert timedelta(microseconds=duration_us(delta)) == delta


@given(st.text(max_size=20))
def test_any_text_gives_a_duration_or_a_value_error(text: str) -> None:
    try:
        us = duration_us(text, "wait")
    except ValueError as error:
        if not str(error).startswith("wait must "):
            raise
    else:
        assert us >= 0


def test_the_longest_duration_is_2_to_the_60_microseconds() -> None:
    assert duration_us(2**60) == 2**60
    for value in (2**60 + 1, f"{2**60 + 1} us", timedelta.max, 10**5000):
        with pytest.raises(ValueError, match=r"^wait must be at most 1152921504606846976 us .about 36,500 years., got"):
            duration_us(value, "wait")


# Times


@pytest.mark.parametrize(
    ("moment", "us"),
    [
        (datetime(1970, 1, 1), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), -1),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1, 1, 1), -62_135_596_800_000_000),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999), 253_402_300_799_999_999),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))), 253_402_383_599_999_999),
    ],
)
def test_a_datetime_is_microseconds_since_1970_and_a_naive_one_is_utc(moment: datetime, us: int) -> None:
    assert datetime_us(moment) == us


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_as_it_went_in(moment: datetime) -> None:
    assert from_us(datetime_us(moment)) == moment


@pytest.mark.parametrize("us", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**70])
def test_a_time_outside_of_the_calendar_is_a_value_error(us: int) -> None:
    with pytest.raises(ValueError, match="outside of the years 1 to 9999"):
        from_us(us)


# Very long durations and very late times, against this promise of docs/rules.md: "close: the end of a bounded
# input: the watermark goes to infinity, nothing stays held".


def test_a_delay_of_any_length_is_emitted_at_the_close_or_refused_when_it_is_made() -> None:
    try:
        rules = Rules(key="k", time="t", type="y").delay(after="a", by=2**62, emit="much later")
    except ValueError:
        return
    assert [r.kind for r in rules.run([{"k": "a", "t": 0, "y": "a"}])] == ["event", "emit"]


@pytest.mark.parametrize("time", [2**61, 2**62, -(2**62)])
def test_an_event_of_any_time_comes_out_as_an_event_or_is_refused(time: int) -> None:
    rules = Rules(key="k", time="t").order()
    try:
        kinds = [r.kind for r in rules.run([{"k": "a", "t": time}])]
    except ValueError:
        return
    assert kinds == ["event"]


def test_a_deadline_past_the_year_9999_is_no_overflow_error() -> None:
    rules = Rules(key="k", time="t", type="y").delay(after="a", by="9000000 days", emit="in 24,000 years")
    with pytest.raises(ValueError):  # noqa: PT011 - the event or the duration may be named
        list(rules.run([{"k": "a", "t": datetime(2020, 1, 1), "y": "a"}]))

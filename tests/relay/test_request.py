"""What a request may ask for, header by header: a number that is none, or that no relay could keep to, is refused; and when
a series occurs next: zones, clocks that are put forward and back, expressions that nobody meant.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.wire.cron import next_ms
from waterclock.relay.wire.request import BadRequest, Header, request_of

NOW = 1_780_315_200_000
NO_NUMBERS = [None, b"", b" ", b"-1", b"+1", b" 5", b"5 ", b"1.5", b"1e3", b"0x10", b"1_000", b"NaN", b"inf", b"soon"]
NO_NUMBERS += ["\u0663".encode(), b"\xff", b"9" * 19]
TIMES = {  # a request with this header, and what else it needs
    "deliver-at": [],
    "delay": [],
    "delay-ttl": [("delay", b"1000")],
    "delay-expires": [("delay", b"1000")],
}


def asked(*headers: Header, timestamp_ms: int = NOW) -> str:
    """Why it is refused; empty if it is taken."""
    try:
        request_of([("deliver-to", b"reminders"), *headers], timestamp_ms)
    except BadRequest as error:
        return str(error)
    return ""


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("name", TIMES)
def test_what_is_no_number_is_refused(name: str, text: bytes | None) -> None:
    assert asked((name, text), *TIMES[name]).startswith(f"{name} must be milliseconds as decimal digits, got ")


ENDS = {  # of each header, numbers at the ends of what is taken -> why it is refused
    "deliver-at 0": "",
    "deliver-at 140737488355327": "",
    "deliver-at 140737488355328": "the message would be due 140737488355328 ms after 1970, later than the year 6400",
    "deliver-at 999999999999999999": "later than the year 6400",
    "delay 0": "",
    "delay 999999999999999999": "later than the year 6400",
    "delay-ttl 0": "it would expire when it is due, at 1780315201000, and is delivered a little later",
    "delay-ttl 1": "",
    "delay-ttl 999999999999999999": "",
    "delay-expires 0": "it would expire before it is due",
    f"delay-expires {NOW + 1_000}": "it would expire when it is due",
    f"delay-expires {NOW + 1_001}": "",
    "delay-expires 999999999999999999": "",
}


@pytest.mark.parametrize("case", ENDS)
def test_a_number_that_no_relay_can_keep_to_is_refused(case: str) -> None:
    name, _, text = case.partition(" ")
    why = asked((name, text.encode()), *TIMES[name])
    assert ENDS[case] in why if ENDS[case] else not why


TEXTS: dict[str, tuple[list[Header], bytes | None]] = {  # of each header that is no number, what is refused
    "deliver-to empty": ([("deliver-at", b"1")], b""),
    "delay-id empty": ([("deliver-at", b"1")], b""),
    "delay-id long": ([("deliver-at", b"1")], b"x" * 256),
    "delay-id bytes": ([("deliver-at", b"1")], b"\xff"),
    "delay-action empty": ([("deliver-at", b"1"), ("delay-id", b"a")], b""),
    "delay-action other": ([("deliver-at", b"1"), ("delay-id", b"a")], b"Cancel"),
    "delay-cron empty": ([("delay-id", b"a")], b""),
    "delay-cron null": ([("delay-id", b"a")], None),
    "delay-cron long": ([("delay-id", b"a")], b"0,0" * 100 + b" * * * *"),
    "delay-zone empty": ([("delay-id", b"a"), ("delay-cron", b"0 9 * * *")], b""),
    "delay-zone path": ([("delay-id", b"a"), ("delay-cron", b"0 9 * * *")], b"../../etc/passwd"),
    "delay-missed other": ([("delay-id", b"a"), ("delay-cron", b"0 9 * * *")], b"none"),
    "delay-occurrence other": ([("delay-id", b"a"), ("delay-cron", b"0 9 * * *")], b"1"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_that_says_nothing_is_refused(case: str) -> None:
    name = case.partition(" ")[0]
    others, text = TEXTS[case]
    headers = [("deliver-to", b"t"), *others] if name != "deliver-to" else others
    with pytest.raises(BadRequest, match=name):
        request_of([*headers, (name, text)], NOW)


def test_the_next_occurrence_of_a_series_may_be_due_at_its_very_end() -> None:
    """The relay has written it, and its end was taken."""
    series = [("delay-id", b"a"), ("delay-cron", b"0 9 * * *"), ("deliver-at", b"5000"), ("delay-expires", b"5000")]
    assert asked(*series).startswith("it would expire when it is due")
    assert not asked(*series, ("delay-occurrence", b"2 0"))


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 2**62])
def test_a_record_with_a_strange_timestamp_is_taken_or_refused_with_a_sentence(timestamp_ms: int) -> None:
    for headers in ([("delay", b"5")], [("delay-id", b"a"), ("delay-cron", b"0 9 * * *")]):
        why = asked(*headers, timestamp_ms=timestamp_ms)
        assert ("later than the year 6400" in why) is (timestamp_ms > 0)


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

"""What a request may ask for, header by header: a number that is none, or that no relay could keep to, is refused."""

from __future__ import annotations

import pytest

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

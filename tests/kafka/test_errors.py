"""The table of Kafka's errors: a code has one meaning, and every code is one that the client knows."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import KafkaError, KafkaException

from waterclock.kafka.errors import CODES, Meaning, is_refusal, meaning_of, words_of

ALL = [code for codes in CODES.values() for code in codes]
KNOWN = {value for name, value in vars(KafkaError).items() if name.isupper() and isinstance(value, int)}


def test_every_code_in_the_table_is_one_that_the_client_knows() -> None:
    assert set(ALL) <= KNOWN
    assert [KafkaError(code).name() for code in ALL if KafkaError(code).str().startswith("Err-")] == []


def test_no_code_stands_in_two_rows() -> None:
    assert [code for code, count in Counter(ALL).items() if count > 1] == []


def test_every_meaning_but_the_last_has_its_codes() -> None:
    assert {*Meaning} - {*CODES} == {Meaning.AGAIN}


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (KafkaError._AUTHENTICATION, Meaning.REFUSED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Meaning.REFUSED),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Meaning.UNKNOWN),
        (KafkaError._FENCED, Meaning.FENCED),
        (KafkaError.INVALID_PRODUCER_EPOCH, Meaning.FENCED),
        (KafkaError.MSG_SIZE_TOO_LARGE, Meaning.TOO_LARGE),
        (KafkaError._FATAL, Meaning.ENDED),
        (KafkaError._TRANSPORT, Meaning.AGAIN),
        (KafkaError.LEADER_NOT_AVAILABLE, Meaning.AGAIN),
    ],
)
def test_a_code_means_what_its_row_says(code: int, meaning: Meaning) -> None:
    error = KafkaError(code)
    assert meaning_of(error) is meaning
    assert is_refusal(error) == (meaning in (Meaning.REFUSED, Meaning.ENDED))


def test_a_fatal_error_ends_the_asking_whatever_its_code() -> None:
    assert is_refusal(KafkaError(KafkaError._TRANSPORT, "gone", fatal=True))


def test_an_exception_is_told_in_its_own_words() -> None:
    assert words_of(KafkaException(KafkaError(KafkaError._TRANSPORT, "the line is down"))) == "the line is down"
    assert words_of(TypeError("not a setting")) == "not a setting"
    assert words_of(ValueError()) == ""

"""The table of Kafka's errors: a code has one meaning, and every code is one that the client knows."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from waterclock.broker import Error
from waterclock.kafka.errors import CODES, VERDICTS, Meaning, Verdict, is_refusal, meaning_of, verdict_of, words_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "relay.md"
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
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Meaning.FORBIDDEN),
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
    assert is_refusal(error) == (meaning in (Meaning.REFUSED, Meaning.FORBIDDEN, Meaning.ENDED))


# what a transactional producer can be answered, by Kafka's documents of Produce, AddPartitionsToTxn, InitProducerId,
# AddOffsetsToTxn, TxnOffsetCommit and EndTxn, and by librdkafka itself
ANSWERS = {
    Verdict.CLIENT: (
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED INVALID_GROUP_ID "
        "SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE _AUTHENTICATION _SSL UNSUPPORTED_VERSION "
        "_UNSUPPORTED_FEATURE UNSUPPORTED_COMPRESSION_TYPE INVALID_REQUEST INVALID_REQUIRED_ACKS "
        "INVALID_TRANSACTION_TIMEOUT "
        "OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE"
    ),
    Verdict.TOPIC: (
        "TOPIC_AUTHORIZATION_FAILED TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID "
        "UNSUPPORTED_FOR_MESSAGE_FORMAT _UNKNOWN_TOPIC _UNKNOWN_PARTITION"
    ),
    Verdict.RECORD: (
        "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP INVALID_MSG POLICY_VIOLATION "
        "OFFSET_OUT_OF_RANGE"
    ),
    Verdict.AGAIN: (
        "UNKNOWN LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE "
        "REPLICA_NOT_AVAILABLE "
        "NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_ENOUGH_REPLICAS "
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
        "THROTTLING_QUOTA_EXCEEDED OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID "
        "INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_EPOCH PRODUCER_FENCED _FENCED INVALID_TXN_STATE "
        "CONCURRENT_TRANSACTIONS "
        "OPERATION_NOT_ATTEMPTED TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED ILLEGAL_GENERATION UNKNOWN_MEMBER_ID "
        "REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH UNSTABLE_OFFSET_COMMIT "
        "_TRANSPORT _TIMED_OUT _MSG_TIMED_OUT _TIMED_OUT_QUEUE _ALL_BROKERS_DOWN _RESOLVE _STATE _INCONSISTENT _FATAL "
        "_PURGE_QUEUE _PURGE_INFLIGHT _INVALID_DIFFERENT_RECORD _BAD_MSG _QUEUE_FULL _GAPLESS_GUARANTEE"
    ),
}


@pytest.mark.parametrize(
    ("verdict", "name"), [(verdict, name) for verdict in ANSWERS for name in ANSWERS[verdict].split()]
)
def test_each_answer_that_a_transaction_may_get_is_somebodys_matter(verdict: Verdict, name: str) -> None:
    assert verdict_of(KafkaError(getattr(KafkaError, name))) is verdict


@pytest.mark.parametrize(
    ("verdict", "row"), [(Verdict.RECORD, "one message"), (Verdict.TOPIC, "one topic"), (Verdict.CLIENT, "the relay")]
)
def test_the_document_has_the_same_table(verdict: Verdict, row: str) -> None:
    (line,) = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {row}'s |")]
    codes = [code for meaning, of in VERDICTS.items() if of is verdict for code in CODES[meaning] if code > 0]
    assert set(re.findall(r"`([A-Z_]+)`", line)) == {Error(code).name for code in codes}


def test_every_code_that_is_somebodys_matter_is_one_that_a_transaction_may_get() -> None:
    named = {getattr(KafkaError, name) for names in ANSWERS.values() for name in names.split()}
    assert {code for meaning, codes in CODES.items() if meaning in VERDICTS for code in codes} <= named


def test_a_fatal_error_ends_the_asking_whatever_its_code() -> None:
    assert is_refusal(KafkaError(KafkaError._TRANSPORT, "gone", fatal=True))


def test_an_exception_is_told_in_its_own_words() -> None:
    assert words_of(KafkaException(KafkaError(KafkaError._TRANSPORT, "the line is down"))) == "the line is down"
    assert words_of(TypeError("not a setting")) == "not a setting"
    assert words_of(ValueError()) == ""

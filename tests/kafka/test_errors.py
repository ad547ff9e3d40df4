"""Kafka's errors, what is tried again, and librdkafka's settings: a code has one meaning, and every code is one that the
client knows; pauses end when patience is over; settings come out of a file or out of the environment, and who wins.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from waterclock.broker import Error
from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.kafka.errors import CODES, VERDICTS, Meaning, Verdict, is_refusal, meaning_of, verdict_of, words_of
from waterclock.kafka.patience import Backoff, patiently
from waterclock.kafka.settings import (
    READING,
    SENDING,
    WHY_READING,
    base_settings,
    from_environment,
    from_text,
    producing,
    refuse_own,
)  # fmt: skip

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
    assert words_of(ValueError()) == "ValueError"
    assert words_of(KafkaException(KafkaError(KafkaError._TRANSPORT, "The line is down."))) == "The line is down"


AWAY, REFUSED = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._AUTHENTICATION)


def answers(clock: ManualClock, call_s: float, *given: KafkaError | str) -> tuple[Callable[[], str], list[float]]:
    """A call that takes `call_s` and answers so, the last one for ever; and when it was made."""
    asked: list[float] = []

    def ask() -> str:
        asked.append(clock.monotonic_s())
        clock.sleep_s(call_s)
        answer = given[min(len(asked), len(given)) - 1]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer

    return ask, asked


def no_use(error: KafkaError) -> bool:
    return error == REFUSED


def test_an_answer_is_given_at_once() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, "yes")
    assert patiently(ask, no_use, 60.0, clock) == "yes"
    assert len(asked) == 1


def test_who_does_not_answer_is_asked_again_until_there_is_an_answer() -> None:
    ask, asked = answers(clock := ManualClock(), 1.0, AWAY, AWAY, AWAY, "yes")
    assert patiently(ask, no_use, 60.0, clock) == "yes"
    assert len(asked) == 4


def test_a_refusal_ends_it_at_once() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, AWAY, REFUSED, "yes")
    with pytest.raises(KafkaException) as raised:
        patiently(ask, no_use, 60.0, clock)
    assert (raised.value.args[0], len(asked)) == (REFUSED, 2)


@pytest.mark.parametrize(("call_s", "count"), [(1.0, 10), (5.0, 2), (60.0, 1)])
def test_when_patience_is_over_the_last_error_comes_out(call_s: float, count: int) -> None:
    ask, asked = answers(clock := ManualClock(), call_s, AWAY)
    with pytest.raises(KafkaException) as raised:
        patiently(ask, no_use, 10.0, clock)
    assert (raised.value.args[0], len(asked)) == (AWAY, count)


def test_without_patience_there_is_one_call() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, AWAY)
    with pytest.raises(KafkaException):
        patiently(ask, no_use, 0.0, clock)
    assert len(asked) == 1


def test_endless_patience_waits_on() -> None:
    ask, asked = answers(clock := ManualClock(), 1.0, *[AWAY] * 5000, "yes")
    assert patiently(ask, no_use, math.inf, clock) == "yes"
    assert len(asked) == 5001


def test_calls_that_fail_at_once_do_not_follow_on_each_other_without_a_rest() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, *[AWAY] * 10, "yes")
    patiently(ask, no_use, 60.0, clock)
    assert all(later > earlier for earlier, later in pairwise(asked))


def test_a_pause_grows_with_each_attempt_that_fails_and_is_the_first_one_again_behind_one_that_succeeded() -> None:
    backoff = Backoff((0.5, 2.0), clock := ManualClock())
    assert (backoff.is_time, backoff.failed(), backoff.failed(), backoff.failed()) == (True, 0.5, 2.0, 2.0)
    clock.advance_s(1.75)
    assert not backoff.is_time
    clock.advance_s(0.25)
    assert backoff.is_time
    backoff.succeeded()
    backoff.sleep()
    assert (clock.monotonic_s(), backoff.attempts, backoff.is_time, backoff.is_over) == (2.5, 1, True, False)
    assert Backoff((1.0,), clock, patience_s=0.0).is_over


WHERE = "--kafka-config"


def test_a_file_holds_a_setting_a_line_and_comments() -> None:
    text = "\n# who we are\nsasl.username = ann\n\nsasl.password=a=b\n  client.id=  me  \n"
    assert from_text(WHERE, text) == {"sasl.username": "ann", "sasl.password": "a=b", "client.id": "me"}
    assert from_text(WHERE, "") == {}


def test_a_line_that_is_none_is_refused_and_a_secret_in_it_is_not_shown() -> None:
    with pytest.raises(UsageError, match=r"^--kafka-config: the line 'sasl.password' is no KEY=VALUE\.$"):
        from_text(WHERE, "sasl.password s3cret")


@pytest.mark.parametrize("line", ["acks=1", "enable.idempotence=false", "isolation.level=read_uncommitted"])
def test_what_keeps_a_promise_is_refused_in_a_file_too_unless_it_is_said_as_we_have_it(line: str) -> None:
    """It was passed over in silence."""
    name = line.partition("=")[0]
    with pytest.raises(UsageError, match=rf"^--kafka-config: '{name}' cannot be set: "):
        from_text(WHERE, line)
    ours = {**SENDING, **READING}[name]
    assert from_text(WHERE, f"{name}={ours}") == {name: str(ours)}


def test_a_user_says_how_quick_a_producer_is_and_no_more() -> None:
    """`linger.ms` and `compression.type` of a user were passed over in silence."""
    given = {"linger.ms": "0", "compression.codec": "zstd", "acks": "0", "client.id": "me"}
    made = producing(given)
    assert {name: made[name] for name in given} == {**given, "acks": "all"}
    assert "compression.type" not in made
    assert made.keys() == {*given, *SENDING} - {"compression.type"}


def test_values_come_from_the_environment_in_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret")
    given = {"sasl": {"password": {"env": "ORDERS_PASSWORD"}, "username": "ann"}, "client.id": "me"}
    assert from_environment("[x]", given) == {"sasl": {"password": "s3cret", "username": "ann"}, "client.id": "me"}


@pytest.mark.parametrize("variable", ["ORDERS_PASSWORD", "", 5, None])
def test_a_variable_that_is_not_set_is_refused_by_the_name_of_its_setting(
    variable: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "")
    with pytest.raises(UsageError, match=r"^\[x\]: 'sasl.password' is to come from the environment, and the variable"):
        from_environment("[x]", {"sasl": {"password": {"env": variable}}})


def test_a_user_wins_over_what_is_quiet_and_the_address_over_the_user() -> None:
    made = base_settings("h:1", {"log_level": "7", "bootstrap.servers": "h:2"})
    assert made == {"log_level": "7", "bootstrap.servers": "h:1"}


@pytest.mark.parametrize("name", READING)
def test_what_keeps_the_promise_of_a_reader_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^\[x\]: '{name}' cannot be set: {WHY_READING[name]}$"):
        refuse_own("[x]", ["client.id", name], WHY_READING)
    refuse_own("[x]", ["client.id"], WHY_READING)


def test_librdkafka_knows_every_setting() -> None:
    from confluent_kafka import Consumer, Producer

    Consumer({**base_settings("127.0.0.1:1", {}), "group.id": "g", **READING}).close()
    Producer({**base_settings("127.0.0.1:1", {}), **SENDING, "transactional.id": "t"})

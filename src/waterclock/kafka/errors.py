"""What Kafka's errors mean, in one table: a code has one meaning, and a code that is not here is worth another try.

    REFUSED      this client may not: asking again is no use before a password, a certificate or a right is mended
    UNSUPPORTED  the broker does not do what this client asks for, or does not take its settings
    NO_GROUP     this client may not use its group: a reader without one reads on
    FORBIDDEN    this client may not use that topic
    UNKNOWN      there is no such topic or partition; or not yet, at a broker that has just started
    UNFIT        no record may go to that topic: its name is none, or its format is an older one
    TOO_LARGE    a record, or the batch that it came in, is larger than its topic takes
    INVALID      a record is not what its topic takes: no key for a compacted one, a timestamp out of range
    FENCED       a later producer has taken the transactional id: this one can write no more
    OUT          the group has gone on without this member
    ANEW         this transaction cannot be committed, and nobody is to blame: aborted and begun anew, it may be. A refused
                 batch leaves a gap in librdkafka's numbers; it counts anew after one more such transaction
    ENDED        the client can do no more; the error that did it is another one
    AGAIN        everything else: brokers that are away, elections, time that was over

Rule 1: of a call within a transaction, librdkafka alone knows whether it may be made again: `retriable()` of the error
    decides there, and not AGAIN.
Rule 2: whose matter a refusal is, the client's, one topic's or one record's, follows from its meaning (`verdict_of`). A
    producer whose record was refused can do everything else.
Rule 3: CORRUPT_MESSAGE, INVALID_MSG here, is a record's matter once librdkafka has sent it again as often as it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from confluent_kafka import KafkaError

from waterclock.errors import unstopped


class Meaning(Enum):
    """What an error means for whoever asked; the table is the file's."""

    REFUSED = auto()
    UNSUPPORTED = auto()
    NO_GROUP = auto()
    FORBIDDEN = auto()
    UNKNOWN = auto()
    UNFIT = auto()
    TOO_LARGE = auto()
    INVALID = auto()
    FENCED = auto()
    OUT = auto()
    ANEW = auto()
    ENDED = auto()
    AGAIN = auto()


class Verdict(Enum):
    """Whose matter it is that something was not written: the client's own, one topic's, one record's; or it may be written
    yet."""

    CLIENT = auto()
    TOPIC = auto()
    RECORD = auto()
    AGAIN = auto()


CODES: Mapping[Meaning, tuple[int, ...]] = {
    Meaning.REFUSED: (
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    Meaning.UNSUPPORTED: (
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
    ),
    Meaning.NO_GROUP: (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INVALID_GROUP_ID),
    Meaning.FORBIDDEN: (KafkaError.TOPIC_AUTHORIZATION_FAILED,),
    Meaning.UNKNOWN: (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ),
    Meaning.UNFIT: (KafkaError.TOPIC_EXCEPTION, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    Meaning.TOO_LARGE: (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE),
    Meaning.INVALID: (
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
        KafkaError.POLICY_VIOLATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
    ),
    Meaning.FENCED: (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH),
    Meaning.OUT: (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
    ),
    Meaning.ANEW: (
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.TRANSACTION_ABORTABLE,
    ),
    Meaning.ENDED: (KafkaError._FATAL,),
}
_MEANINGS = {code: meaning for meaning, codes in CODES.items() for code in codes}
_NO_USE = (Meaning.REFUSED, Meaning.FORBIDDEN, Meaning.ENDED)
VERDICTS: Mapping[Meaning, Verdict] = {
    Meaning.REFUSED: Verdict.CLIENT,
    Meaning.UNSUPPORTED: Verdict.CLIENT,
    Meaning.NO_GROUP: Verdict.CLIENT,
    Meaning.FORBIDDEN: Verdict.TOPIC,
    Meaning.UNKNOWN: Verdict.TOPIC,
    Meaning.UNFIT: Verdict.TOPIC,
    Meaning.TOO_LARGE: Verdict.RECORD,
    Meaning.INVALID: Verdict.RECORD,
}


def meaning_of(error: KafkaError) -> Meaning:
    """What the error means.

    >>> meaning_of(KafkaError(KafkaError._UNKNOWN_TOPIC)).name, meaning_of(KafkaError(KafkaError._TRANSPORT)).name
    ('UNKNOWN', 'AGAIN')
    """
    return _MEANINGS.get(error.code(), Meaning.AGAIN)


def verdict_of(error: KafkaError) -> Verdict:
    """Whose matter it is (rule 2).

    >>> verdict_of(KafkaError(KafkaError.TOPIC_EXCEPTION)).name, verdict_of(KafkaError(KafkaError.REQUEST_TIMED_OUT)).name
    ('TOPIC', 'AGAIN')
    """
    return VERDICTS.get(meaning_of(error), Verdict.AGAIN)


def is_refusal(error: KafkaError) -> bool:
    """Whether asking again, or waiting, is no use."""
    return bool(error.fatal()) or meaning_of(error) in _NO_USE


def words_of(error: Exception | KafkaError) -> str:
    """What an error or exception of confluent-kafka's says, without its code and its full stop. If it says nothing (a
    broker sends an error of a group without words: "ConsumerGroupDescribe: "), what its code means.

    >>> words_of(KafkaError(KafkaError._TRANSPORT, "It is gone."))
    'It is gone'
    """
    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    if not isinstance(cause, KafkaError):
        return unstopped(cause)
    words = str(cause.str())
    return unstopped(KafkaError(cause.code()).str() if words.endswith(": ") else words)

"""What Kafka's errors mean, in one table: a code has one meaning, and a code that is not here is worth another try.

    REFUSED     this client may not: asking again is no use before a password, a certificate or a right is mended
    UNKNOWN     there is no such topic or partition; or not yet, at a broker that has just started
    FENCED      a later producer has taken the transactional id: this one can write no more
    TOO_LARGE   a record is larger than its topic takes: it never will be taken
    ENDED       the client can do no more; the error that did it is another one
    AGAIN       everything else: brokers that are away, elections, time that was over

Rule 1: of a call within a transaction, librdkafka alone knows whether it may be made again: `retriable()` of the error
    decides there, and not AGAIN.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from confluent_kafka import KafkaError


class Meaning(Enum):
    """What an error means for whoever asked; the table is the file's."""

    REFUSED = auto()
    UNKNOWN = auto()
    FENCED = auto()
    TOO_LARGE = auto()
    ENDED = auto()
    AGAIN = auto()


CODES: Mapping[Meaning, tuple[int, ...]] = {
    Meaning.REFUSED: (
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    Meaning.UNKNOWN: (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION),
    Meaning.FENCED: (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH),
    Meaning.TOO_LARGE: (KafkaError.MSG_SIZE_TOO_LARGE,),
    Meaning.ENDED: (KafkaError._FATAL,),
}
_MEANINGS = {code: meaning for meaning, codes in CODES.items() for code in codes}


def meaning_of(error: KafkaError) -> Meaning:
    """What the error means.

    >>> meaning_of(KafkaError(KafkaError._UNKNOWN_TOPIC)).name, meaning_of(KafkaError(KafkaError._TRANSPORT)).name
    ('UNKNOWN', 'AGAIN')
    """
    return _MEANINGS.get(error.code(), Meaning.AGAIN)


def is_refusal(error: KafkaError) -> bool:
    """Whether asking again, or waiting, is no use."""
    return bool(error.fatal()) or meaning_of(error) in (Meaning.REFUSED, Meaning.ENDED)


def words_of(error: Exception) -> str:
    """What an exception of confluent-kafka's says, without its code."""
    cause = error.args[0] if error.args else error
    return str(cause.str()) if isinstance(cause, KafkaError) else str(cause)

"""What a turn that Kafka refused teaches: who is put aside, which target is in doubt; and what ends the relay.

What is named is named by the record's own report. Whose matter it is, says `verdict_of` of the error:

    named                            verdict   then
    one message of a target          RECORD    it is put aside with the reason
    several messages of a target     RECORD    half of them are tried, by themselves (doubts.py)
    messages of a target             TOPIC     all that is due for it is put aside, as long as `targets.FRESH_S`
    messages of some of the targets  AGAIN     these are tried by themselves, after a pause
    messages of all targets          AGAIN     Kafka is slow: the next turn is smaller, after a take-over
    one letter                       RECORD    it is written without the record
    several letters                  RECORD    half of them are written at once
    what the relay writes for itself RECORD    half as much is done at once; a single one ends the relay
                                     TOPIC     ends the relay; but a topic that was deleted may be made again (topics.py)
    nothing, and the error is nobody's fault   the same again, a few times; then a take-over
    nothing                                    the next turn names; if it named already:
      only one target                TOPIC     as above, if the relay may write to its own topics
      several                                  each is tried by itself

Rule 1: nobody is put aside for another one's sake: a reason is a report of that message alone, or of all that goes to its
        target.
Rule 2: an error that is the client's own matter ends the relay with a sentence, before anything of this (context.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, Message

from waterclock.errors import UsageError
from waterclock.kafka.errors import Meaning, Verdict, meaning_of, verdict_of
from waterclock.relay.owner.context import RecordRefused
from waterclock.relay.owner.owner import Owner
from waterclock.relay.store.rows import Array

MOST_ANEW: Final = 3  # in a row
# what befalls a record for another one's sake
_BESIDE: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._INVALID_DIFFERENT_RECORD)


class Reports:
    """What was heard of the records of one turn. `of_message`, `of_letter` and `of_own` are for their reports."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[str, KafkaError]] = {}  # by origin: the topic that refused it
        self.letters: dict[int, str] = {}  # by offset: why
        self.own: tuple[str, KafkaError] | None = None  # a topic of the relay's own, and why it refused
        self.precise: set[str] = set()  # topics that said which record of a batch is meant

    def of_message(self, origin: int, error: KafkaError | None, message: Message) -> None:
        """Of one that is delivered."""
        if error is not None and error.code() not in _BESIDE:
            self.messages[origin] = (message.topic(), error)
        elif error is not None and error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self.precise.add(message.topic())

    def of_letter(self, offset: int, error: KafkaError | None, message: Message) -> None:
        """Of a dead letter."""
        if error is not None and verdict_of(error) is Verdict.RECORD:
            self.letters[offset] = _words_of(message.topic(), error)
        else:
            self.of_own(error, message)

    def of_own(self, error: KafkaError | None, message: Message) -> None:
        """Of what the relay writes for itself."""
        if error is not None and error.code() not in _BESIDE and verdict_of(error) is not Verdict.AGAIN:
            self.own = (message.topic(), error)

    def of_next(self, origin: int, error: KafkaError | None, message: Message) -> None:
        """Of the request for the occurrence that follows a message."""
        if error is not None and verdict_of(error) is Verdict.RECORD:
            self.messages[origin] = (message.topic(), error)
        else:
            self.of_own(error, message)

    def refusal(self) -> RecordRefused | None:
        """What one that was only to be tried was refused for; None if it was taken."""
        named = [*self.messages.values(), *([self.own] if self.own else [])]
        return RecordRefused(_words_of(*named[0]), named[0][1]) if named else None


@dataclass(frozen=True, slots=True)
class AbortedTurn:
    """A turn that Kafka did not take: the messages that it was to deliver, how many letters it had, and how much it carried
    in all. `is_named`: there was a report of each message; `is_alone`: it was of one target in doubt."""

    rows: Array
    letters: int
    carried: int
    is_named: bool
    is_alone: bool
    why: RecordRefused


def learn(owner: Owner, turn: AbortedTurn, reports: Reports) -> None:
    """Remember for the next turns of `owner` what the table says. Raises what ends the relay, or this owner."""
    names = owner.store.targets
    owner.context.targets.forget(names[number] for number in np.unique(turn.rows["target"]).tolist())
    if reports.own is not None:
        _learn_of_own(owner, turn, *reports.own)
    elif reports.letters:
        _learn_of_letters(owner, turn, reports.letters)
    elif reports.messages:
        _learn_of_messages(owner, turn, reports)
    elif meaning_of(turn.why.error) is Meaning.ANEW:
        owner.anew += 1
        if owner.anew > MOST_ANEW:
            raise turn.why
    elif turn.is_named:
        _learn_of_nothing(owner, turn)
    else:
        owner.is_naming = True
        if verdict_of(turn.why.error) is Verdict.AGAIN:
            owner.pace = owner.pace.failed(turn.carried)


def refused_own(topic: str, error: KafkaError) -> UsageError:
    """What the relay writes for itself is not taken, and never will be."""
    return UsageError(
        f"Kafka does not take what the relay writes to {topic}: {error.str()}. Look at the rights, and at that topic's "
        "settings."
    )


def _learn_of_own(owner: Owner, turn: AbortedTurn, topic: str, error: KafkaError) -> None:
    if meaning_of(error) is Meaning.UNKNOWN:
        raise turn.why
    if verdict_of(error) is Verdict.TOPIC or turn.carried <= 1:
        raise refused_own(topic, error)
    owner.pace = owner.pace.failed(turn.carried)


def _learn_of_letters(owner: Owner, turn: AbortedTurn, letters: dict[int, str]) -> None:
    if turn.letters == 1:
        owner.refused.update({~offset: why for offset, why in letters.items()})
    if turn.letters > owner.most_letters:  # of what has expired: nothing else bounds these
        owner.pace = owner.pace.failed(turn.carried)
    owner.most_letters = max(1, turn.letters // 2)


def _learn_of_messages(owner: Owner, turn: AbortedTurn, reports: Reports) -> None:
    rows = turn.rows
    of_target = dict(zip(rows["origin"].tolist(), rows["target"].tolist(), strict=True))
    for target in np.unique(rows["target"]).tolist():
        heard = {origin: each for origin, each in reports.messages.items() if of_target.get(origin) == target}
        _learn_of_target(owner, target, int((rows["target"] == target).sum()), heard, reports)
    slow = {of_target[origin] for origin, (_, error) in reports.messages.items() if verdict_of(error) is Verdict.AGAIN}
    if slow == set(of_target.values()) and not turn.is_alone:
        owner.pace = owner.pace.failed(turn.carried)
        raise turn.why
    for target in slow:
        owner.doubts.pause(target)


def _learn_of_target(
    owner: Owner, target: int, count: int, heard: dict[int, tuple[str, KafkaError]], reports: Reports
) -> None:
    for topic, error in heard.values():
        if verdict_of(error) is Verdict.TOPIC:
            owner.context.targets.refuse(topic, _words_of(topic, error))
            return
    refused = {origin: each for origin, each in heard.items() if verdict_of(each[1]) is Verdict.RECORD}
    sure = {origin: _words_of(*each) for origin, each in refused.items() if count == 1 or each[0] in reports.precise}
    owner.refused.update(sure)
    if refused:
        owner.doubts.halve(target, count)
        owner.doubts.probe(
            target, count == 1 and all(meaning_of(error) is Meaning.TOO_LARGE for _, error in refused.values())
        )


def _learn_of_nothing(owner: Owner, turn: AbortedTurn) -> None:
    if (why := owner.context.targets.own_refusal()) is not None:
        if meaning_of(turn.why.error) is Meaning.UNKNOWN:
            raise turn.why
        raise UsageError(f"Kafka does not take what the relay writes for itself: {why} Look at the rights.")
    targets, error = np.unique(turn.rows["target"]).tolist(), turn.why.error
    if verdict_of(error) is Verdict.RECORD:  # of replies alone there are no reports
        _learn_of_own(owner, turn, owner.context.topics.replies, error)
        return
    if not targets:
        raise turn.why
    for target in targets:
        owner.doubts.halve(target, int((turn.rows["target"] == target).sum()))
    if len(targets) == 1 and verdict_of(error) is not Verdict.AGAIN:
        topic = owner.store.targets[targets[0]]
        owner.context.targets.refuse(topic, _words_of(topic, error))
    elif turn.is_alone:
        owner.doubts.pause(targets[0])


def _words_of(topic: str, error: KafkaError) -> str:
    return f"{topic} does not take it: {error.str()}."

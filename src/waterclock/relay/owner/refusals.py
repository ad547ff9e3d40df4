"""Refusals: which of the due messages a turn takes (`choose`), and what a turn that Kafka refused teaches (`learn`).

Rule 1: what is known before is not tried. A message is put aside (it becomes a dead letter, and counts as cancelled) if it
        was refused by itself, if its target is not there, or if this relay may not write to its target.
Rule 2: a target that may refuse is in doubt (pace.py), and has turns of its own, in between those of all others. So is
        one that may be sent more than it takes in one batch.
Rule 3: up to `TOGETHER` are put aside in one turn: each is read from the log again, and others wait for it.
Rule 4: nobody is put aside for another one's sake: a reason is a report of that message alone, or of all that goes to its
        target.
Rule 5: an error that is the client's own matter ends the relay with a sentence, before anything of this (context.py).

What a turn teaches. A record is named if Kafka's delivery report of that very record has an error; whose matter the error
is, says `verdict_of`:

    row  named                             verdict  then
    1    one message of a target           RECORD   it is put aside with the reason; so is one of a batch of which Kafka
                                                    said which record it means
    2    several messages of a target      RECORD   half of them are tried, by themselves (pace.py); of what is not
                                                    delivered, but has a next occurrence that the input refuses, the next
                                                    turn takes half as much
    3    messages of a target              TOPIC    all that is due for it is put aside, as long as `targets.FRESH_S`
    4    messages of some of the targets   AGAIN    these are tried by themselves, after a pause
    5    messages of all targets           AGAIN    Kafka is slow: the next turn is smaller, after a take-over
    6    one letter                        RECORD   it is written without the record
    7    several letters                   RECORD   half of them are written at once
    8    what the relay writes for itself  RECORD   half as much is done at once; a single one ends the relay
    9                                      TOPIC    ends the relay; one that was deleted may be made again (wire/topics.py)
    10   nothing, and the error is ANEW             the same again, a few times; then a take-over
    11   nothing                                    the next turn has a report of each message. If this one had them:
    12     a reply was refused             RECORD   as row 8
    13     only one target                 TOPIC    as row 3, if the relay may write to its own topics
    14     only one target, by itself      AGAIN    it is tried again after a pause
    15     several targets                          each is tried by itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message

from waterclock.errors import UsageError
from waterclock.kafka.errors import Meaning, Verdict, meaning_of, verdict_of, words_of
from waterclock.relay.owner.context import BATCH_BYTES, RecordRefused
from waterclock.relay.owner.owner import Owner, letter_of
from waterclock.relay.owner.pace import TOGETHER
from waterclock.relay.store import unpack
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.letters import Letter
from waterclock.relay.wire.request import AT, ID, TO

_OVERHEAD: Final = (
    160  # bytes at most that a message has in its batch, beside what its row counts and the names of the input
)
MOST_ANEW: Final = 3  # in a row
# errors of a record that is thrown away because another one was refused
_BESIDE: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._INVALID_DIFFERENT_RECORD)


class Chosen(NamedTuple):
    """`rows` are to be delivered. `aside` are not: each has one of the dead `letters`. `is_alone`: all are for one target
    in doubt; `is_probe`: and this turn only asks whether it takes the message."""

    rows: Array
    aside: Array
    letters: list[Letter]
    is_alone: bool
    is_probe: bool


def choose(owner: Owner, most: int, most_letters: int) -> Chosen:
    """What the next turn of `owner` takes, `most` messages at most, `most_letters` of them to be put aside. These
    wait no more; all others do. ConnectionLost if Kafka is away."""
    doubts, rows = owner.doubts, owner.due(owner.context.clock.wall_ms(), most)
    if doubts.is_empty:
        owner.was_alone = False
    else:  # rule 2
        rows = doubts.sift(rows)
        # a target in doubt and all others take turns, if both have something
        owner.was_alone = doubts.has_portion and not (owner.was_alone and len(rows))
        if owner.was_alone:
            owner.put_back(rows)
            rows = doubts.portion(partial(_sizes, owner), partial(_limit, owner), most)
        else:
            rows = np.concatenate([doubts.to_put_aside(), rows])
    names = {number: owner.store.targets[number] for number in np.unique(rows["target"]).tolist()}
    refusing = owner.context.targets.refusing(names.values()) if names else {}
    owner.to_ask_again |= refusing.keys()
    for name in sorted(owner.to_ask_again.intersection(names.values()) - refusing.keys()):
        owner.to_ask_again.discard(name)
        owner.producer.look_again(name)  # librdkafka remembers that there was no such topic, or no right to it
    reasons = dict(owner.refused)
    for number in (number for number, name in names.items() if name in refusing):
        reasons.update(dict.fromkeys(rows["origin"][rows["target"] == number].tolist(), refusing[names[number]]))
    is_aside = np.isin(rows["origin"], list(reasons)) if reasons else np.zeros(len(rows), bool)
    bad, most_aside = np.flatnonzero(is_aside), max(0, min(TOGETHER, most_letters))
    if len(bad) > most_aside:  # rule 3
        cut = int(bad[most_aside])
        put_back(owner, rows[cut:], owner.was_alone)
        rows, is_aside = rows[:cut], is_aside[:cut]
    stays = rows[~is_aside] if owner.was_alone else _fitting(owner, rows[~is_aside], names)
    aside = rows[is_aside]
    letters = _letters_of(owner, aside, reasons) if len(aside) else []  # the log's bounds are not asked for nothing
    return Chosen(stays, aside, letters, owner.was_alone, owner.was_alone and owner.doubts.is_probe)


def _letters_of(owner: Owner, rows: Array, reasons: Mapping[int, str]) -> list[Letter]:
    """The dead letters of these: the records as they came; one that is cut off by now, as it is in the files."""
    origins, letters = rows["origin"].tolist(), list[Letter]()
    records = owner.context.logs.records(owner.context.topics.input, owner.number, origins)
    for place, origin in enumerate(origins):
        if origin in records:
            letters.append(letter_of(records[origin], reasons[origin], True))
            continue
        row = rows[place : place + 1]
        (payload,) = map(unpack, owner.store.read(row))
        request = [(TO, owner.store.targets[row["target"][0]].encode()), (AT, b"%d" % row["due"][0])]
        request += [(ID, payload.id)] if payload.id else []
        headers = [*request, *payload.headers]
        letters.append(Letter(origin, reasons[origin], payload.value, payload.key, headers, True))
    return letters


def put_back(owner: Owner, rows: Array, is_alone: bool) -> None:
    """These messages are for another turn."""
    (owner.doubts if is_alone else owner).put_back(rows)


def give_back(owner: Owner, taken: Array, is_alone: bool) -> None:
    """All that a turn took is for another one, in its order."""
    rows = taken[np.lexsort((taken["origin"], taken["due"]))]
    are_refused = np.isin(rows["origin"], list(owner.refused))
    owner.doubts.refused(rows[are_refused])
    put_back(owner, rows[~are_refused], is_alone)


def _sizes(owner: Owner, rows: Array) -> Array:
    """How many bytes each takes in a batch, at most."""
    return np.asarray(rows["length"].astype("i8") + _OVERHEAD + len(owner.context.place_of(owner.number)))


def _limit(owner: Owner, target: int) -> int | None:
    name = owner.store.targets[target]
    owner.context.targets.refusing([name])  # so that it is known
    return owner.context.targets.limit(name)


def _fitting(owner: Owner, rows: Array, names: Mapping[int, str]) -> Array:
    """The messages that fit into one batch of their targets, as far as the targets' limits are known. A target that may
    refuse some of them becomes one in doubt, and its messages wait there."""
    sizes = _sizes(owner, rows)
    totals = np.bincount(rows["target"], sizes)
    for number, name in names.items():
        limit = owner.context.targets.limit(name)
        if limit is None or number >= len(totals) or totals[number] <= limit:
            continue
        # librdkafka fills a batch up to BATCH_BYTES, so only a smaller limit can be exceeded by several together
        if limit < BATCH_BYTES or sizes[rows["target"] == number].max() > limit:
            owner.doubts.add(number)
    return rows if owner.doubts.is_empty else owner.doubts.sift(rows)


class Reports:
    """Kafka's delivery reports of the records of one turn; each method is called with reports of one kind of record."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[str, KafkaError]] = {}  # by origin: the topic that refused it
        self.letters: dict[int, str] = {}  # by offset: why
        self.own: tuple[str, KafkaError] | None = None  # a topic of the relay's own, and why it refused
        self.precise: set[str] = set()  # topics that said which record of a batch is meant

    def of_message(self, origin: int, error: KafkaError | None, message: Message) -> None:
        """The report of a message that is delivered."""
        if error is not None and error.code() not in _BESIDE:
            self.messages[origin] = (message.topic(), error)
        elif error is not None and error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self.precise.add(message.topic())

    def of_letter(self, offset: int, error: KafkaError | None, message: Message) -> None:
        """The report of a dead letter."""
        if error is not None and verdict_of(error) is Verdict.RECORD:
            self.letters[offset] = _words_of(message.topic(), error)
        else:
            self.of_own(error, message)

    def of_own(self, error: KafkaError | None, message: Message) -> None:
        """The report of a record that the relay writes for itself."""
        if error is not None and error.code() not in _BESIDE and verdict_of(error) is not Verdict.AGAIN:
            self.own = (message.topic(), error)

    def of_next(self, origin: int, error: KafkaError | None, message: Message) -> None:
        """The report of the request for the occurrence that follows a message."""
        if error is not None and verdict_of(error) is Verdict.RECORD:
            self.messages[origin] = (message.topic(), error)
        else:
            self.of_own(error, message)

    def refusal(self) -> RecordRefused | None:
        """Why a probe was refused; None if it was taken."""
        named = [*self.messages.values(), *([self.own] if self.own else [])]
        return RecordRefused(_words_of(*named[0]), named[0][1]) if named else None


@dataclass(frozen=True, slots=True)
class AbortedTurn:
    """A turn that Kafka did not take: the messages that it was to deliver, how many letters it had, and how much it carried
    in all. `has_reports`: there was a report of each message; `is_alone`: it was for one target in doubt."""

    rows: Array
    letters: int
    carried: int
    has_reports: bool
    is_alone: bool
    why: RecordRefused


def learn(owner: Owner, turn: AbortedTurn, reports: Reports) -> None:
    """Remember for the next turns of `owner` what the table says. Raises UsageError if that ends the relay, and the refusal
    if there is to be a take-over."""
    names = owner.store.targets
    owner.context.targets.forget(names[number] for number in np.unique(turn.rows["target"]).tolist())
    if reports.own is not None:
        _learn_of_own(owner, turn, *reports.own)
    elif reports.letters:
        _learn_of_letters(owner, turn, reports.letters)
    elif reports.messages:
        _learn_of_messages(owner, turn, reports)
    elif meaning_of(turn.why.error) is Meaning.ANEW:  # row 10
        owner.anew += 1
        if owner.anew > MOST_ANEW:
            raise turn.why
    elif turn.has_reports:
        _learn_of_nothing(owner, turn)
    else:  # row 11
        owner.reports_each = True
        if verdict_of(turn.why.error) is Verdict.AGAIN:
            owner.pace = owner.pace.failed(turn.carried)


def refused_own(topic: str, error: KafkaError) -> UsageError:
    """The error if Kafka does not take what the relay writes for itself, and never will."""
    return UsageError(
        f"Kafka does not take what the relay writes to {topic}: {words_of(error)}. Look at the rights, and at that topic's "
        "settings."
    )


def _learn_of_own(owner: Owner, turn: AbortedTurn, topic: str, error: KafkaError) -> None:
    """Rows 8 and 9."""
    if meaning_of(error) is Meaning.UNKNOWN:  # deleted: it may be made again
        raise turn.why
    if verdict_of(error) is Verdict.TOPIC or turn.carried <= 1:
        raise refused_own(topic, error)
    owner.pace = owner.pace.failed(turn.carried)


def _learn_of_letters(owner: Owner, turn: AbortedTurn, letters: dict[int, str]) -> None:
    """Rows 6 and 7."""
    if turn.letters == 1:
        owner.refused_letters.update(letters)
    if turn.letters > owner.most_letters:  # of what has expired: nothing else bounds these
        owner.pace = owner.pace.failed(turn.carried)
    owner.most_letters = max(1, turn.letters // 2)


def _learn_of_messages(owner: Owner, turn: AbortedTurn, reports: Reports) -> None:
    """Rows 1 to 5."""
    rows = turn.rows
    of_target = dict(zip(rows["origin"].tolist(), rows["target"].tolist(), strict=True))
    for target in np.unique(rows["target"]).tolist():
        heard = {origin: each for origin, each in reports.messages.items() if of_target.get(origin) == target}
        _learn_of_target(owner, target, int((rows["target"] == target).sum()), heard, reports)
    others = {origin: _words_of(*each) for origin, each in reports.messages.items() if origin not in of_target}
    if (
        len(others) == 1 or reports.precise
    ):  # row 1: expired or left out, and Kafka refuses the request for the next one
        owner.refused.update(others)
    elif others:  # row 2
        owner.pace = owner.pace.failed(turn.carried + len(others))
    slow = {
        of_target[origin]
        for origin, (_, error) in reports.messages.items()
        if origin in of_target and verdict_of(error) is Verdict.AGAIN
    }
    if slow and slow == set(of_target.values()) and not turn.is_alone:  # row 5
        owner.pace = owner.pace.failed(turn.carried)
        raise turn.why
    for target in slow:  # row 4
        owner.doubts.pause(target)


def _learn_of_target(
    owner: Owner, target: int, count: int, heard: dict[int, tuple[str, KafkaError]], reports: Reports
) -> None:
    for topic, error in heard.values():
        if verdict_of(error) is Verdict.TOPIC:  # row 3
            owner.context.targets.refuse(topic, _words_of(topic, error))
            return
    refused = {origin: each for origin, each in heard.items() if verdict_of(each[1]) is Verdict.RECORD}
    sure = {origin: _words_of(*each) for origin, each in refused.items() if count == 1 or each[0] in reports.precise}
    owner.refused.update(sure)  # row 1
    if refused:  # row 2
        owner.doubts.halve(target, count)
        owner.doubts.probe(
            target, count == 1 and all(meaning_of(error) is Meaning.TOO_LARGE for _, error in refused.values())
        )


def _learn_of_nothing(owner: Owner, turn: AbortedTurn) -> None:
    """Rows 12 to 15: no record is named, though each had a report."""
    if (why := owner.context.targets.own_refusal()) is not None:
        if meaning_of(turn.why.error) is Meaning.UNKNOWN:
            raise turn.why
        raise UsageError(f"Kafka does not take what the relay writes for itself: {why} Look at the rights.")
    targets, error = np.unique(turn.rows["target"]).tolist(), turn.why.error
    if verdict_of(error) is Verdict.RECORD:  # row 12: of replies alone there are no reports
        _learn_of_own(owner, turn, owner.context.topics.replies, error)
        return
    if not targets:
        raise turn.why
    for target in targets:  # row 15, and what comes before rows 13 and 14
        owner.doubts.halve(target, int((turn.rows["target"] == target).sum()))
    if len(targets) == 1 and verdict_of(error) is not Verdict.AGAIN:  # row 13
        topic = owner.store.targets[targets[0]]
        owner.context.targets.refuse(topic, _words_of(topic, error))
    elif turn.is_alone:  # row 14
        owner.doubts.pause(targets[0])


def _words_of(topic: str, error: KafkaError) -> str:
    return f"{topic} does not take it: {words_of(error)}."

"""Signs of life of a group's relays, beside the group's session: by them a standby hears that an owner stops, and within
two seconds that one was killed. Apache Kafka allows no session shorter than six.

    1. sign     each `EVERY_S` a relay says of each partition that it owns: who it is, how far it is, whether it stops
    2. look     as often it reads what was said last of each partition
    3. orphan   an owner says that it stops; or it was heard before, and `SILENT` looks in a row have found nothing new

A sign is an offset of a second consumer group, GROUP.signs, which has no members: it needs no topic, and is written over.

Rule 1: a sign is a word and no right. Whoever takes an orphan fences its owner (take_over.py): a sign that is wrong or was
        lost costs a take-over, and no message.
Rule 2: signs and looks are a thread's of their own: an owner that waits for a slow Kafka lives. What is found is judged in
        the relay's.
Rule 3: looks are counted, and not time: who was frozen himself has looked but once. Those that a Kafka that stood still
        answers together are of one moment: nobody looks again before he was answered, or while two of his own signs wait.
Rule 4: silence counts only of who was heard here. What stood there at the first look says nothing.
Rule 5: an orphan is one once, until its partition is heard of anew. An owner that was taken for dead and is heard again is
        believed for `BELIEVED` looks, and for twice as many each time that it was: so long its group alone says whether it
        lives.
Rule 6: who is alone in its group says so, once, then nothing, and looks at nothing. Its silence says nothing: another one
        may read up that is in no group yet. A missing right is logged, once: then it is as without signs, and the group's
        session tells.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from waterclock.kafka.errors import Meaning, is_refusal, meaning_of, words_of
from waterclock.outside import threading, uuid

log = logging.getLogger("waterclock.relay")
EVERY_S: Final = 0.3
SILENT: Final = 4
BELIEVED: Final = 20
_ANSWER_S: Final = 5.0
_STOPS: Final = " stops"
_ALONE: Final = " alone"


@dataclass(slots=True)
class _Heard:
    """The last word of a partition, and how many looks found it again. `is_news`: rules 4 and 5; `taken_from`: whose it was
    when this relay took it."""

    word: str
    looks: int = 0
    is_news: bool = False
    taken_from: str = ""

    @property
    def who(self) -> str:
        return self.word.split(" ")[0]

    @property
    def stops(self) -> bool:
        return self.word.endswith(_STOPS)


class Signs:
    """Of one relay, for the partitions of `topic`. `is_alone`: rule 6. For the relay's thread."""

    def __init__(self, client: AdminClient, group: str, topic: str, partitions: int) -> None:
        self._client, self._group, self._topic = client, f"{group}.signs", topic
        self._me = uuid.uuid4().hex[:12]
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._owned: tuple[Mapping[int, int], bool] = {}, False
        self.is_alone, self._may = False, True
        self._heard: dict[int, _Heard] = {}
        self._looks, self._believed_until = 0, dict[str, int]()
        self._buried, self._believed_for = set[str](), dict[str, int]()
        self._asked: deque[tuple[bool, Any]] = deque()
        self._is_closed, self._wakes = False, threading.Event()
        self._thread = threading.Thread(target=self._talk, name="signs", daemon=True)
        self._thread.start()

    def own(self, positions: Mapping[int, int], stops: bool) -> None:
        """These partitions are owned here, answered up to there; what is new is said at once."""
        owned, did_stop = self._owned
        self._owned = dict(positions), stops
        if positions.keys() - owned.keys() or stops is not did_stop:
            self._wakes.set()

    def close(self) -> None:
        """Say nothing more."""
        self._is_closed = True
        self._wakes.set()
        self._thread.join()

    # 1. sign, 2. look: in their own thread

    def _talk(self) -> None:
        count, was_alone = 0, False
        while not self._is_closed:
            self._wakes = threading.Event()  # before a look at what there is to say
            (owned, stops), is_alone, count = self._owned, self.is_alone, count + 1
            if self._may and not (is_alone and was_alone):
                word = f"{self._me} {count}{_STOPS if stops else _ALONE if is_alone else ''}"
                waiting = list(self._asked)
                looks = len(waiting) < 2 and not any(is_look for is_look, _ in waiting)
                said = [TopicPartition(self._topic, n, at, word) for n, at in owned.items()]
                self._asked.extend(self._ask(said, looks))
            was_alone = is_alone
            self._wakes.wait(EVERY_S)

    def _ask(self, said: list[TopicPartition], looks: bool) -> Iterator[tuple[bool, Any]]:
        """Whether it is a look, and its answer to come."""
        if said:
            signs = ConsumerGroupTopicPartitions(self._group, said)
            yield False, self._client.alter_consumer_group_offsets([signs], request_timeout=_ANSWER_S)[self._group]
        if looks:
            asked = ConsumerGroupTopicPartitions(self._group, self._places)
            found = self._client.list_consumer_group_offsets([asked], require_stable=False, request_timeout=_ANSWER_S)
            yield True, found[self._group]

    # What is made of it

    def hear(self) -> None:
        """Judge what was found."""
        while self._asked and self._asked[0][1].done():
            is_look, future = self._asked.popleft()
            try:
                places = future.result().topic_partitions
                if error := next((one.error for one in places if one.error is not None), None):
                    raise KafkaException(error)
            except KafkaException as raised:
                self._refused(raised)
                continue
            self._looks += is_look
            for place in places if is_look else ():
                self._note(place.partition, place.metadata or "")

    def _refused(self, raised: KafkaException) -> None:
        """Rule 6."""
        error = raised.args[0]
        if self._may and (is_refusal(error) or meaning_of(error) is Meaning.NO_GROUP):
            self._may = False
            log.warning(
                "Kafka refuses signs of life in the group %s (%s). A relay that stops or dies is noticed when its session "
                "is over. The relay's user needs the right Read of that group.",
                self._group,
                words_of(raised),
            )

    def _note(self, number: int, word: str) -> None:
        heard = self._heard.setdefault(number, _Heard(word))
        if word == heard.word:
            heard.looks += 1
            return
        heard.word, heard.looks = word, 0
        heard.is_news = heard.who != self._me and not word.endswith(_ALONE)
        if heard.who == heard.taken_from and not heard.stops and heard.who in self._buried:
            self._buried.remove(heard.who)
            self._believed_for[heard.who] = looks = 2 * self._believed_for.get(heard.who, BELIEVED // 2)
            self._believed_until[heard.who] = self._looks + looks

    # 3. orphan

    def orphans(self) -> Iterator[tuple[int, bool]]:
        """Partitions whose owners stop, which is True, or are silent."""
        for number, heard in self._heard.items():
            is_silent = heard.looks >= SILENT and self._believed_until.get(heard.who, 0) < self._looks
            if heard.is_news and (heard.stops or is_silent):
                yield number, heard.stops

    def take(self, number: int) -> None:
        """This relay takes an orphan."""
        heard = self._heard[number]
        heard.is_news, heard.taken_from = False, heard.who
        self._buried.add(heard.who)

    def pass_over(self, number: int) -> None:
        """What was heard of a partition so far says nothing."""
        if number in self._heard:
            self._heard[number].is_news = False

    def is_anothers(self, number: int) -> bool:
        """Whether somebody else has said since that he owns it."""
        heard = self._heard.get(number)
        return heard is not None and heard.is_news and heard.who != heard.taken_from

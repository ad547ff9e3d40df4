"""`Delays`: messages to be delivered later, from a Python program. It talks to Kafka; a relay elsewhere does the work.

Rule 1: when `send` returns, the request is in the log, acknowledged by all replicas in sync.
Rule 2: an id lives in the partition that Kafka's own hash chooses for the message's key, or if there is no key, for the
        id. Who cancels says the key again, or shows the receipt; else the request goes to all partitions.
Rule 3: an answer was committed with its effect: it is true when it comes. An answer that does not come says nothing. The
        replies are looked for anew then: the topic may have been made again, or have more partitions.
Rule 4: the client's threads do not outlast a fork: who was forked makes one of its own.
Rule 5: with `db`, a request is a row of that connection's transaction (outbox.py), and Kafka need not be there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from waterclock.clock import SystemClock, WallClock
from waterclock.durations import Duration
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError
from waterclock.kafka.errors import Verdict, is_refusal, verdict_of, words_of
from waterclock.kafka.patience import Backoff
from waterclock.kafka.settings import READING, SENDING, base_settings, producing
from waterclock.outside import os, threading
from waterclock.relay.client.outbox import ANYWHERE, OutboxRow, write
from waterclock.relay.client.sending import (
    WRITTEN,
    Answer,
    Moment,
    Receipt,
    Text,
    answer_of,
    cancel_headers,
    partition_of,
    request_answered,
    schedule_headers,
    when_headers,
)
from waterclock.relay.handlers.handlers import Function, Handlers
from waterclock.relay.handlers.retries import WAITS
from waterclock.relay.wire.request import Header

log = logging.getLogger("waterclock.relay")
_SENDING: Final = {**SENDING, "linger.ms": 0, "delivery.report.only.error": False}
_ANSWER_S: Final = 5.0
_STARTING_S: Final = 5.0  # a relay that has just been started makes its topics before that


class Delays:
    """Sends to the relay of `topic` on the Kafka at `bootstrap`. `settings` are librdkafka's, for TLS and SASL;
    `patience_s`: how long Kafka, or a relay's answer, is waited for. Any thread may call it. Without `bootstrap` it is for
    calls with `db` alone, and needs no Kafka.

    EnvironmentMissing if there is no Kafka, no such topic, or no relay that answers. UsageError for settings that make
    no client. RuntimeError in a process that was forked since: make another one there.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        topic: str = "delays",
        *,
        settings: Mapping[str, Any] | None = None,
        patience_s: float = 30.0,
        clock: WallClock | None = None,
    ) -> None:
        self._settings = base_settings(bootstrap or "", settings or {})
        self._servers = bootstrap
        self._topic = topic
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._process = os.getpid()
        self._replies: Any = None  # a Consumer, once an answer was waited for
        self._answering = threading.Lock()
        self._handlers = Handlers(self._settings, topic)
        if bootstrap is not None:
            self._connect(bootstrap)

    def _connect(self, bootstrap: str) -> None:
        from waterclock.kafka import library
        from waterclock.kafka.admin import Admin
        from waterclock.relay.wire.topics import STARTS

        topic, patience_s = self._topic, self._patience_s
        admin = Admin(self._settings, patience_s, starts=STARTS)
        waiting = Backoff((0.2,), self._clock, min(patience_s, _STARTING_S))
        while topic not in (topics := admin.topics()):
            if waiting.is_over:
                raise EnvironmentMissing(
                    f"There is no topic {topic} at {bootstrap}. A relay makes it: "
                    f"waterclock relay --bootstrap {bootstrap} --topic {topic}"
                )
            if not waiting.attempts:
                log.warning("there is no topic %s yet: waiting for its relay", topic)
            waiting.sleep()
        self._partitions = topics[topic]
        patience = {"message.timeout.ms": int(patience_s * 1000)}
        self._producer = library.Producer(producing({**self._settings, **patience}, _SENDING))

    def send(
        self,
        target: str,
        value: Text | None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        key: Text | None = None,
        id: str = "",
        headers: Sequence[Header] = (),
        expires: Moment | Duration | None = None,
        db: object = None,
    ) -> Receipt:
        """Have `value` delivered to the topic `target`, after `delay` ("3 days", a timedelta) or at a moment (a datetime,
        or ms since 1970). `id` is a name to cancel or replace it by; two messages may have the same: one
        cancel meets both. What cannot be delivered until `expires`, a moment, or a text or timedelta after it is due, goes
        to TOPIC.dead.

        With `db`, a connection in a transaction (of psycopg or PyMySQL, a session of SQLAlchemy's, Django's `connection`),
        the message exists if and only if that commits. The receipt's partition is -1 then, its offset the row's number.
        """
        made = self._headers(target, when_headers(delay, at, expires), id, headers, is_replace=False)
        if db is not None:
            return self._in_transaction(db, value, key, made, id, None)
        return self._write(value, key, made, id, self._place(key, id))

    def every(
        self,
        target: str,
        value: Text | None,
        *,
        cron: str,
        id: str,
        zone: str = "UTC",
        missed: str = "once",
        key: Text | None = None,
        headers: Sequence[Header] = (),
        expires: Moment | Duration | None = None,
    ) -> Receipt:
        """Have `value` delivered again and again: `cron` has five fields, `zone` is as "Europe/Berlin". It takes the place
        of what is pending under `id`, so a program may call it whenever it starts; `cancel(id)` ends the series.

        `missed`: what becomes of occurrences that no relay was there to deliver: "once" (one of them, late), "all" or
        "skip". `expires`: a moment ends the series; a duration is how late each occurrence may be.
        """
        made = self._headers(
            target, when_headers(expires=expires, cron=cron, zone=zone, missed=missed), id, headers, is_replace=True
        )
        return self._write(value, key, made, id, self._place(key, id))

    def cancel(self, which: str | Receipt, *, key: Text | None = None, db: object = None) -> Answer:
        """Have all messages of an id not delivered. `which`: the id, with the `key` of its message if it had one, or a
        receipt of `send`. Without a key the cancel goes to all partitions, since any may have it. With `db` it is asked
        for if and only if that transaction commits: the outcome is `written`, and what becomes of it stands in
        TOPIC.replies."""
        id, place = _named(which)
        if not id:
            raise ValueError(f"{which} has no id: send it with one to be able to cancel it")
        if place is None and key is not None:
            place = self._place(key, id) if db is None else None
        if db is not None:
            self._in_transaction(db, None, key, cancel_headers(id), id, place)
            return Answer(id, WRITTEN, 0)
        self._refuse_without_kafka()
        places = list(range(self._partitions)) if place is None else [place]
        return self._ask(None, key, cancel_headers(id), id, places)

    def replace(
        self,
        which: str | Receipt,
        target: str,
        value: Text | None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        key: Text | None = None,
        headers: Sequence[Header] = (),
        expires: Moment | Duration | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        missed: str = "once",
        db: object = None,
    ) -> Answer:
        """Cancel what is pending under an id, and schedule this under it, both or neither. What was delivered already stays
        delivered; this is scheduled all the same, and the answer says so. With `cron` it recurs, as with `every`, which
        waits for no answer. `db` is as for `cancel`."""
        id, place = _named(which)
        when = when_headers(delay, at, expires, cron=cron, zone=zone, missed=missed)
        made = self._headers(target, when, id, headers, is_replace=True)
        if db is not None:
            self._in_transaction(db, value, key, made, id, place)
            return Answer(id, WRITTEN, 0)
        return self._ask(value, key, made, id, [self._place(key, id) if place is None else place])

    def handler(
        self,
        topic: str,
        *,
        group: str | None = None,
        database: str | None = None,
        waits: Sequence[Duration] = WAITS,
    ) -> Callable[[Function], Function]:
        """A decorator: the function is called with each `Delivery` to the topic, in order, while `run` runs; processes with
        the same `group` (TOPIC.handler by default) share the work. One that raises is tried again after each of the
        `waits`, then the message goes to GROUP.dead.

        At least once: `Delivery.id` tells a second time from the first. With `database`, the URL of a PostgreSQL, the
        function gets a connection too (psycopg's), and what it writes there is written exactly once; it does not commit.
        """
        self._refuse_without_kafka()
        return self._handlers.decorator(topic, group, database, waits)

    def run(self) -> None:
        """Call the handlers until `stop` is called, or Ctrl-C or SIGTERM comes (which is left to a program that hears it
        itself); what is lost meanwhile is connected to again."""
        self._handlers.run()

    def stop(self) -> None:
        """Have `run` return when the functions that are running have; from any thread."""
        self._handlers.stop()

    def close(self) -> None:
        """Wait for what is on its way, and let go of the connections."""
        if self._servers is not None:
            self._producer.flush(self._patience_s)
        self._forget_replies()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _headers(
        self, target: str, when: list[Header], id: str, headers: Sequence[Header], *, is_replace: bool
    ) -> list[Header]:
        return schedule_headers(self._topic, target, when, id, headers, is_replace, self._clock.wall_ms())

    def _in_transaction(
        self, db: object, value: Text | None, key: Text | None, headers: list[Header], id: str, place: int | None
    ) -> Receipt:
        """Rule 5."""
        row = OutboxRow.made(self._topic, place, key, value, headers, self._clock.wall_ms())
        return Receipt(self._topic, ANYWHERE, write(db, row), id)

    def _place(self, key: Text | None, id: str) -> int:
        self._refuse_without_kafka()
        if key is None and not id:
            return -1  # any
        by = id if key is None else key
        return partition_of(by.encode() if isinstance(by, str) else by, self._partitions)

    def _write(self, value: Text | None, key: Text | None, headers: list[Header], id: str, place: int) -> Receipt:
        self._refuse_fork()
        heard: list[Any] = []
        self._producer.produce(
            self._topic, value, key, place, headers=headers, on_delivery=lambda *said: heard.append(said)
        )
        while not heard:
            self._producer.poll(0.1)
        error, message = heard[0]
        if error is None:
            return Receipt(self._topic, message.partition(), message.offset(), id)
        if verdict_of(error) is Verdict.RECORD or (is_refusal(error) and not error.fatal()):
            raise UsageError(
                f"Kafka refuses the request: {words_of(error)}. Look at its size (max.message.bytes of the topic "
                f"{self._topic}), and at the rights."
            )
        raise ConnectionLost(f"Kafka did not take the request: {words_of(error)}.")

    def _refuse_fork(self) -> None:
        """Rule 4: it would wait for ever."""
        if os.getpid() != self._process:
            raise RuntimeError("this process was forked since Delays was made: make another one here")

    def _refuse_without_kafka(self) -> None:
        if self._servers is None:
            raise UsageError(
                "These Delays know no Kafka: give db=, a connection in a transaction, or make them with bootstrap."
            )

    # Answers

    def _ask(self, value: Text | None, key: Text | None, headers: list[Header], id: str, places: list[int]) -> Answer:
        """Write the request to each of these partitions, and wait for all answers. Rule 3."""
        self._refuse_fork()
        with self._answering:
            if self._replies is None:
                self._replies = self._listen()
            wanted = {self._write(value, key, headers, id, place).origin for place in places}
            found: list[bytes] = []
            until_s = self._clock.monotonic_s() + self._patience_s
            while wanted and self._clock.monotonic_s() < until_s:
                message = self._replies.poll(0.1)
                if message is None or message.error() is not None:
                    continue
                request = request_answered(message.value())
                if request in wanted:
                    wanted.discard(request)
                    found.append(message.value())
            if wanted:
                self._forget_replies()
                raise EnvironmentMissing(
                    f"No relay has answered {', '.join(sorted(wanted))} within {self._patience_s:g} s: whether it was done "
                    f"is not known. Is `waterclock relay --bootstrap {self._servers} --topic {self._topic}` running?"
                )
            return answer_of(found)

    def _forget_replies(self) -> None:
        replies, self._replies = self._replies, None
        if replies is not None:
            replies.close()

    def _listen(self) -> Any:
        """A reader of the replies, from now on."""
        from confluent_kafka import KafkaException, TopicPartition

        from waterclock.kafka import library

        topic = f"{self._topic}.replies"
        settings = {**self._settings, **READING, "group.id": "unused", "fetch.wait.max.ms": 100}
        # two: librdkafka's consumer, once used for metadata, begins to read a second later
        finder, reader = library.Consumer(settings), library.Consumer(settings)
        try:
            each = [
                TopicPartition(topic, n) for n in finder.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
            ]
            for one in each:
                one.offset = finder.get_watermark_offsets(one, timeout=_ANSWER_S)[1]
        except KafkaException as error:
            reader.close()
            raise ConnectionLost(f"Kafka does not say where {topic} ends: {words_of(error)}.") from None
        finally:
            finder.close()
        reader.assign(each)
        return reader


def _named(which: str | Receipt) -> tuple[str, int | None]:
    """Its id, and the partition if that is known; TypeError for what names no message."""
    if isinstance(which, Receipt):
        return which.id, None if which.partition == ANYWHERE else which.partition
    if not isinstance(which, str):
        raise TypeError(f"a message is named by its id, a text, or by the receipt of send, not by {which!r}")
    return which, None

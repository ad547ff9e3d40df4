"""How far a group has handled its topics, in PostgreSQL: what a handler writes and its offset, in one transaction.

    1. begin     and be alone among those who handle this partition for this group
    2. refuse    what is handled already: a message that comes again, or one that another process has handled meanwhile
    3. note      the offset behind the message
    4. handle    the handler writes what it wants, through the same connection
    5. commit

A crash between any two leaves what was there before 1, and the message comes again; behind 5 it is refused by 2.

Rule 1: the database is right: a group begins to read where it says. What Kafka knows of the group's offsets is for people.
Rule 2: a topic is known by its id too: one that was made again under the same name begins anew.
Rule 3: a handler does not end the transaction. 3 comes before 4, so that one that does cannot have its message twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from waterclock.errors import ConnectionLost, SinkLost, UsageError
from waterclock.kafka.admin import Admin
from waterclock.postgres.session import PostgresSession
from waterclock.relay.handlers.retries import LeftBroken

TABLE: Final = "waterclock_handled"
_MAKE: Final = f"""
    CREATE TABLE {TABLE} (
        group_id text, topic text, topic_id text, partition integer, next_offset bigint NOT NULL,
        PRIMARY KEY (group_id, topic, topic_id, partition)
    )
"""
_FIND: Final = f"""
    SELECT next_offset FROM {TABLE} WHERE group_id = %s AND topic = %s AND topic_id = %s AND partition = %s
"""
_NOTE: Final = f"""
    INSERT INTO {TABLE} VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (group_id, topic, topic_id, partition) DO UPDATE SET next_offset = EXCLUDED.next_offset
"""
_IN_TRANSACTION: Final = 2  # libpq's PQTRANS_INTRANS
_IN_ERROR: Final = 3


class HandledOffsets:
    """The offsets of a group in the database at `url`; `ids` are those of its topics. SinkLost if the connection goes
    away: what was not committed is undone, and the message comes again."""

    def __init__(self, url: str, group: str, ids: Mapping[str, str]) -> None:
        self._session = PostgresSession(url)
        self._group = group
        self._ids = ids
        self._session.begin(TABLE)  # two that make the table at once are in each other's way
        if self._session.run("SELECT to_regclass(%s)", TABLE) == [(None,)]:  # who may not make it may use it
            self._session.run(_MAKE)
        self._session.commit()

    def next_offset(self, topic: str, partition: int) -> int | None:
        """Up to where a partition is handled; None if nothing of it is."""
        rows = self._session.ask(_FIND, *self._key(topic, partition))
        return int(rows[0][0]) if rows else None

    def refuse_another(self, admin: Admin, topics: Collection[str]) -> None:
        """ConnectionLost if one of the topics was made again since this began: rule 2."""
        if gone := admin.gone({topic: self._ids[topic] for topic in topics}):
            raise ConnectionLost(f"The topic {gone[0]} was deleted, and may have been made again.")

    def apply(self, message: Any, handle: Callable[[Any], object]) -> bool:
        """Steps 1 to 5; False if the message was handled before. What `handle` raises is raised, and nothing stays."""
        session, (topic, partition, offset) = self._session, (message.topic(), message.partition(), message.offset())
        try:
            session.begin(f"{TABLE} {self._group} {topic} {partition}")  # 1
            rows = session.run(_FIND, *self._key(topic, partition))
            if rows and rows[0][0] > offset:  # 2
                session.rollback()
                return False
            session.run(_NOTE, *self._key(topic, partition), offset + 1)  # 3
            self._call(handle)  # 4
            session.commit()  # 5
        except BaseException:
            session.rollback()
            raise
        return True

    def _call(self, handle: Callable[[Any], object]) -> None:
        connection = self._session.connection
        try:
            handle(connection)
        except Exception as error:
            if connection.closed:  # not the handler's fault: the message comes again
                raise SinkLost(f"The connection to {self._session.url} went away: {error}") from error
            raise
        status = int(connection.info.transaction_status)
        if status == _IN_ERROR:
            raise LeftBroken("it has passed over an error of PostgreSQL: its transaction cannot be committed")
        if status != _IN_TRANSACTION:
            raise UsageError(
                "A handler with database= has ended the transaction that it was called in: leave out its commit and "
                "rollback. To undo a part, write `with connection.transaction():` around it."
            )

    def close(self) -> None:
        self._session.close()

    def _key(self, topic: str, partition: int) -> tuple[object, ...]:
        return self._group, topic, self._ids[topic], partition

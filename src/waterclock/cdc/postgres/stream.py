"""PostgreSQL's protocol of replication: what a slot has, as a stream, by libpq's own functions. The server sends as it
decodes, and is told how far all is safe; so nothing is asked for, and nothing is decoded twice.

    server  w   start, end, time: then a message of pgoutput
            k   end, time, whether it wants an answer: all up to `end` was decoded and sent
    client  r   written, flushed, applied, time, whether it wants an answer

Rule 1: `flushed` is what was confirmed, and nothing more: up to there the server may throw its log away.
Rule 2: a server that has nothing to say is asked every ASKED_S how far it is. One that does not answer for GONE_S is
        gone. While it decodes one transaction of which nobody wants a row it is silent for half of wal_sender_timeout, and
        before PostgreSQL 16 until its end, if that has much DDL: so as long as that setting says is waited for too.
Rule 3: one stream reads a slot. After a kill the server holds it for a moment: that is waited for, up to HELD_S.
Rule 4: the end is said to the server and its answer is waited for, up to END_S: then what was confirmed is stored there,
        and the slot is free.
"""

from __future__ import annotations

import selectors
import struct
from contextlib import suppress

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result

from waterclock.cdc.postgres.session import ReplicationSlot, walsender
from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, unstopped

ASKED_S, GONE_S, HELD_S, END_S = 1.0, 60.0, 5.0, 2.0
_AGAIN_S = 0.1
_STREAMING = 140_000  # the version from which on a large transaction may come before its commit
_EPOCH_MS = 946_684_800_000  # 2000-01-01, from which PostgreSQL counts
_DATA, _ALIVE = b"w", b"k"
_TIMEOUT_MS = "select setting::bigint from pg_settings where name = 'wal_sender_timeout'"


class ReplicationStream:
    """Of one slot, from `place` on, an LSN. It begins when it is made."""

    def __init__(self, slot: ReplicationSlot, place: str, clock: WallClock) -> None:
        self._clock = clock
        self._connection = walsender(slot)
        self._libpq = self._connection.pgconn
        self._waiting = selectors.DefaultSelector()
        self._confirmed = 0
        self._heard_s = self._asked_s = clock.monotonic_s()
        try:
            if self._connection.info.parameter_status("server_encoding") == "SQL_ASCII":
                # PostgreSQL would refuse all that is no UTF-8
                self._connection.execute("set client_encoding to 'SQL_ASCII'")
            (timeout_ms,) = self._connection.execute(_TIMEOUT_MS).fetchone() or (0,)
            self._gone_s = max(GONE_S, timeout_ms / 1000)  # rule 2
            self._start(slot, place)
            self._waiting.register(self._libpq.socket, selectors.EVENT_READ)
        except BaseException:
            self._connection.close()
            raise

    def next(self, wait_s: float) -> bytes | int | None:
        """A message of pgoutput; or the place up to which everything was sent; or None if nothing came for so long."""
        while True:
            try:
                length, data = self._libpq.get_copy_data(1)
            except psycopg.OperationalError:  # the server had ended it when something was said to it
                length, data = -1, None
            if length > 0 and data is not None:
                self._heard_s = self._clock.monotonic_s()
                if data[:1] == _DATA:
                    return bytes(data[25:])
                if data[:1] == _ALIVE:
                    end, wants_answer = struct.unpack_from(">Q8x?", data, 1)
                    if wants_answer:
                        self._say()
                    return int(end)
            elif length < 0:
                self._ended()
            elif not self._waiting.select(wait_s):
                self._ask()
                return None
            else:
                self._libpq.consume_input()

    def confirm(self, lsn: int) -> None:
        """Everything up to there is safe."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._say()

    def close(self) -> None:
        """Rule 4."""
        self._waiting.close()
        with suppress(psycopg.Error), selectors.DefaultSelector() as waiting:
            waiting.register(self._libpq.socket, selectors.EVENT_READ)
            self._libpq.put_copy_end()
            self._libpq.flush()
            end_s = self._clock.monotonic_s() + END_S
            while (length := self._libpq.get_copy_data(1)[0]) >= 0 and self._clock.monotonic_s() < end_s:
                if length == 0 and waiting.select(_AGAIN_S):
                    self._libpq.consume_input()
        self._connection.close()

    def _start(self, slot: ReplicationSlot, place: str) -> None:
        streams = self._libpq.server_version >= _STREAMING
        options = "proto_version '2', streaming 'on'" if streams else "proto_version '1'"
        named = sql.Literal(sql.Identifier(slot.publication).as_string())
        command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({}, publication_names {})").format(
            sql.Identifier(slot.name), sql.SQL(place), sql.SQL(options), named
        )
        text, end_s = command.as_string(self._connection).encode(), self._clock.monotonic_s() + HELD_S
        while (result := self._libpq.exec_(text)).status != pq.ExecStatus.COPY_BOTH:
            error = error_from_result(result)
            if not isinstance(error, psycopg.errors.ObjectInUse):
                raise error
            if self._clock.monotonic_s() >= end_s:
                raise ConnectionLost(
                    f"The slot {slot.name} is read by another process ({unstopped(error)}): end it, or wait: of one that "
                    "was cut off the server knows after a minute (wal_sender_timeout)."
                )
            self._clock.sleep_s(_AGAIN_S)  # rule 3

    def _ask(self) -> None:
        """Rule 2."""
        now_s = self._clock.monotonic_s()
        if now_s - self._heard_s >= self._gone_s:
            raise ConnectionLost(
                f"PostgreSQL has not said how far it is for {self._gone_s:.0f} seconds. If it decodes one transaction for "
                "longer, set wal_sender_timeout higher (ALTER ROLE): so long is waited."
            )
        if now_s - self._asked_s >= ASKED_S:
            self._asked_s = now_s
            self._say(wants_answer=True)

    def _say(self, wants_answer: bool = False) -> None:
        time_us = (self._clock.wall_ms() - _EPOCH_MS) * 1000
        told = struct.pack(">cQQQq?", b"r", self._confirmed, self._confirmed, self._confirmed, time_us, wants_answer)
        with suppress(psycopg.OperationalError):  # the next reading says what the server had to say
            self._libpq.put_copy_data(told)
            self._libpq.flush()

    def _ended(self) -> None:
        result = self._libpq.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
        raise ConnectionLost("PostgreSQL ended the stream.")

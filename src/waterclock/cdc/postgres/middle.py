"""Where another reader of a slot stands, in our words: whole transactions, and records of the next one.

Rule 1: a transaction is known by its number. LSNs of changes do not rise from one transaction to the next.
Rule 2: changes that one record of the log holds (COPY) have one LSN. If the reader ended among them nobody can say how many
        it had: that is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from psycopg.rows import tuple_row

from waterclock.cdc.position import Position
from waterclock.cdc.postgres.catalog import TableCatalog
from waterclock.cdc.postgres.pgoutput import Decoder, lsn_number, lsn_text
from waterclock.cdc.postgres.session import ReplicationSlot, connected, errors_of_postgres
from waterclock.errors import UsageError

_SLOT = "select confirmed_flush_lsn::text, active from pg_replication_slots where slot_name = %s"
_PEEK = (
    "select lsn::text, data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', "
    "'publication_names', %s)"
)


def position_at(
    slot: ReplicationSlot, wanted: Callable[[str, str], bool], commit: int, last: int, transaction: int
) -> Position:
    """`commit`: the LSN of the last commit that was seen whole; `last`: of the last change, of this `transaction`."""
    with errors_of_postgres(slot), connected(slot) as asking, connected(slot) as reading:
        found = asking.execute(_SLOT, (slot.name,)).fetchone()
        if found is None:
            raise UsageError(f"There is no slot {slot.name}: what was committed since Debezium ended is gone.")
        if found[1]:
            raise UsageError(f"The slot {slot.name} is being read: stop the connector first.")
        place, inside, alike = lsn_number(str(found[0])), "", 0
        decoder = Decoder(Position(str(found[0])), wanted, TableCatalog(asking))
        with reading.transaction(), reading.cursor(name="peeked", binary=True, row_factory=tuple_row) as cursor:
            cursor.execute(_PEEK, (slot.name, slot.publication))
            for where, data in cursor:
                message, here = bytes(data), lsn_number(str(where))
                if message[:1] == b"B":
                    final, _, number = struct.unpack_from(">QqI", message, 1)
                    if final > commit:
                        inside = lsn_text(final) if number == transaction else ""
                        if not inside:
                            break
                elif inside and message[:1] in b"IUDT":
                    if here > last:
                        break
                    alike = alike + 1 if here == last else 0
                elif message[:1] == b"C":
                    if inside:
                        break
                    place = max(place, struct.unpack_from(">Q", message, 10)[0])
                for _ in decoder.take(message):
                    pass
    if alike > 1:
        raise UsageError(
            f"Debezium ended at {lsn_text(last)}, where {alike} rows share one record of the log (COPY), and its offset "
            "does not say how many of them it had. Start the connector once more, and stop it when nothing is written."
        )
    rows = decoder.taken if inside else 0
    return Position(lsn_text(place), 0, rows, inside if rows else "")

"""Whose log it is: whether a server has the history that a position was taken from, or another one under the same numbers.

Rule 1: a server bears a number for good (system_identifier). A copy that was brought back to an earlier time, or a standby
        that took over, counts on under another timeline: what it has of the former one ends where it left it. A position
        behind that is of another history.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from waterclock.cdc.position import Position
from waterclock.cdc.postgres.pgoutput import lsn_number
from waterclock.cdc.postgres.session import ReplicationSlot, walsender
from waterclock.errors import UsageError

log = logging.getLogger("waterclock.cdc")
_SERVER = (
    "select system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) "
    "from pg_control_system()"
)


def history(slot: ReplicationSlot, asking: psycopg.Connection[Any], position: Position) -> dict[str, str]:
    """What is to be stored of the server; UsageError if it is not the one from which the position was taken."""
    number, timeline = asking.execute(_SERVER).fetchone() or ("", "0")
    now = {"id": str(number), "timeline": str(int(timeline, 16))}
    held = position.held.server if position.held else {}
    if not held or held == now:
        return now
    said = f"it is the server {now['id']}, and {held['id']} was read"
    if held["id"] == now["id"]:
        left = _left(slot, held["timeline"], now["timeline"])
        if left and lsn_number(position.place) <= lsn_number(left):
            log.warning("The server is on the timeline %s, which left %s at %s, behind what was read.",
                        now["timeline"], held["timeline"], left)  # fmt: skip
            return now
        said = (
            f"its timeline {now['timeline']} left {held['timeline']}, which was read, at {left or 'an unknown place'}"
        )
    raise UsageError(
        f"Kafka has the changes up to {position.place}, and the server has another history under the same numbers: {said}. "
        "Bring the target up to date by hand, and start anew under another --name."
    )


def _left(slot: ReplicationSlot, former: str, timeline: str) -> str:
    """Where a timeline left a former one, by its history file; "" if it never was on it."""
    with walsender(slot) as asking:
        found = asking.execute(f"TIMELINE_HISTORY {int(timeline)}").fetchone()
    content = found[1] if found else ""
    lines = (content.decode() if isinstance(content, bytes) else str(content)).splitlines()
    left = {parts[0]: parts[1] for parts in (line.split() for line in lines) if len(parts) > 1}
    return left.get(former, "")

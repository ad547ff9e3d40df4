"""What rules give back: one record for every kind of result, and the id that makes a re-run recognisable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

Key = str | int

EVENT, EMIT, EXPIRED, MET, GAP, LATE, QUIET = "event", "emit", "expired", "met", "gap", "late", "quiet"
KINDS = (EVENT, EMIT, EXPIRED, MET, GAP, LATE, QUIET)


class Result(NamedTuple):
    """One result of the rules.

    `due` is event time in the kind the events carried (datetime or microseconds); `emitted_at` is the watermark it
    was made at, None at the close of a bounded input. `event` is the released or late event itself, or those columns of the
    event that opened the result which its rule carries, else None.
    """

    kind: str
    key: Key
    rule: str
    due: datetime | int
    emitted_at: datetime | int | None
    source_id: str
    result_id: str
    event: Mapping[str, Any] | None


def result_id(kind: str, key: Key, rule: str, source_id: str) -> str:
    """32 hex digits, the same for the same result in every run, so that a sink may upsert.

    >>> result_id("emit", "A1", "Add penalty", "e7") == result_id("emit", "A1", "Add penalty", "e7")
    True
    """
    return blake2b(f"{kind}\0{key!r}\0{rule}\0{source_id}".encode(), digest_size=16).hexdigest()

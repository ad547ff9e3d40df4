"""What a batch read, as its row in the sink says it: the log that state is made from again.

Rule 1: the record is written in the transaction of the batch's results: a batch that has no record was never seen.
Rule 2: it says what was read (`place`), not what to ask for: of topics the ends of all known partitions, for one of which
        nothing was read holds the watermark back; of files their names in their order, with their sizes.
Rule 3: it says what came of it: how many rows, dead letters and the like, and the watermark of each partition. A replay
        that finds others read other bytes, or could not read some.
Rule 4: it names the version and the settings. State that is derived by other ones would mean something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from waterclock.errors import StateMismatch

Place = Mapping[str, Any]
Clock = Mapping[str, int | None]  # partition -> its watermark in microseconds; None if nothing was read of it
ENGINE = "local"


@dataclass(frozen=True, slots=True)
class Record:
    """`start` and `place` are where the batch began and ended; the one that closes read nothing, and `closes`."""

    settings: str  # a digest
    version: str
    start: Place
    place: Place
    clock: Clock
    closes: bool = False
    read: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(
            {"engine": ENGINE} | {name: getattr(self, name) for name in self.__slots__}, separators=(",", ":")
        )


def record_of(text: str | None, where: str) -> Record:
    """What `Record.text` made; StateMismatch if it is another engine's."""
    try:
        found = json.loads(text or "")
        if found.pop("engine") == ENGINE:
            return Record(**found)
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise StateMismatch(
        f'{where} was written by another engine than "local": name another table in [sink] and another checkpoint in '
        "[pipeline], or go on with the engine that wrote it"
    )


def begin_of(records: Mapping[int, Record]) -> int:
    """The first batch that there must be a record of: 0, or the one by which another engine handed the sink over."""
    first = min(records, default=0)
    return first if records and records[first].start == records[first].place else 0

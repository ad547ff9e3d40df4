"""The name of a table's own topic: `shop` and the table till.item make `shop.till.item`.

Rule 1: letters, digits, `_` and `-` stand as they are. Another character becomes `_`, and behind such a name stands a sum
        of what it was: `a b` and `a.b` are two topics, and each is the same after every start.
Rule 2: two tables whose topics Kafka would not tell apart (it takes `.` and `_` for one in names of metrics) are refused,
        and so is a name that is too long: never are two tables in one topic.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from waterclock.errors import UsageError

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 249


def topic_of(prefix: str, database: str, table: str) -> str:
    """The name; UsageError if it would be too long for Kafka.

    >>> topic_of("shop", "till", "item"), topic_of("shop", "till", "größe")
    ('shop.till.item', 'shop.till.gr__e-5bd3a989')
    """
    name = f"{prefix}.{_legal(database)}.{_legal(table)}"
    if len(name) > _LONGEST:
        raise UsageError(
            f"The topic of {database}.{table} would be {name[:40]}..., with {len(name)} letters, and Kafka takes "
            f"{_LONGEST}. Leave the table out (--tables), or give the topics a shorter beginning (--to)."
        )
    return name


def _legal(name: str) -> str:
    odd = _ODD.sub("_", name)
    return name if odd == name else f"{odd}-{zlib.crc32(name.encode()):08x}"


class Names:
    """The topics of tables that were met so far; `taken` are topics of the capture that are no table's."""

    def __init__(self, prefix: str, taken: Iterable[str]) -> None:
        self._prefix = prefix
        self._owners = {_alike(topic): f"the topic {topic} of this capture" for topic in taken if topic}

    def of(self, database: str, table: str) -> str:
        """The topic of a table; UsageError if another one has it."""
        topic = topic_of(self._prefix, database, table)
        owner = self._owners.setdefault(_alike(topic), f"the table {database}.{table}")
        if owner != f"the table {database}.{table}":
            raise UsageError(
                f"The table {database}.{table} would have the topic {topic}, which Kafka does not tell from that of {owner}"
                ". Leave one of them out (--tables), and capture it under another --name to another topic."
            )
        return topic


def _alike(topic: str) -> str:
    return topic.replace(".", "_")

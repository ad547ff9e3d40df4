"""How long it takes from sending an event to the commit of the batch that took it, for every event of a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

Places = dict[int, int]  # partition -> offset


def read_to(offsets: str) -> Places:
    """Up to where a batch read each partition, from what the sink keeps of it: of Spark's the third line is the topic's.

    >>> read_to('v1\\n{}\\n{"fines": {"0": 5}}\\n-')
    {0: 5}
    >>> read_to('{"engine": "local", "place": {"fines": {"0": 5}}}')
    {0: 5}
    """
    lines = offsets.splitlines()
    if len(lines) == 1 and lines[0] != "v1":
        topics = json.loads(lines[0])["place"]
    else:
        topics = json.loads(lines[2]) if len(lines) > 2 and lines[2] != "-" else {}
    return {int(partition): end for ends in topics.values() for partition, end in ends.items()}


def taken(batches: list[tuple[int, str]]) -> Iterator[tuple[int, int, int, int]]:
    """(batch, partition, first offset, end) of what each batch took; `batches` are (number, offsets) in order."""
    done: Places = {}
    for number, offsets in batches:
        for partition, end in read_to(offsets).items():
            yield number, partition, done.get(partition, 0), end
            done[partition] = end


def latencies_s(
    database: Path, sent_s: Mapping[tuple[int, int], float], committed_s: Mapping[int, float]
) -> list[float]:
    """Seconds from sending to commit, one for each record of `sent_s` whose batch is among `committed_s`; sorted."""
    with closing(sqlite3.connect(database)) as db:
        batches = db.execute("SELECT batch_id, offsets FROM results_batches ORDER BY batch_id").fetchall()
    return sorted(
        committed_s[number] - sent_s[partition, offset]
        for number, partition, first, end in taken(batches)
        for offset in range(first, end)
        if (partition, offset) in sent_s and number in committed_s
    )


def percentile(ordered: list[float], percent: int) -> float:
    """The least value that `percent` of 100 are not above; 0 of nothing.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99), percentile([], 50)
    (2.0, 4.0, 0.0)
    """
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0

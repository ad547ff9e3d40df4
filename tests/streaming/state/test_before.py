"""State that an earlier waterclock wrote: it is read, and what comes of it is as if it had been one run.

`version_3.msgpack` was written by the waterclock before rules could ask for more columns: the rules of test_bucket.py after
40 of their events, in steps of 8, with what they had found by then.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.streaming.state.test_bucket import ENGINES, KINDS_OF_RULES, rows, step
from waterclock.rules.engine import CLOSED
from waterclock.streaming.state.bucket import Bucket, StoredBucket

STORED = msgpack.unpackb((Path(__file__).parent / "version_3.msgpack").read_bytes(), strict_map_key=False)


def told(result: dict[str, Any]) -> tuple[Any, ...]:
    return result["kind"], result["key"], result["rule"], str(result["due"]), result["source_id"]


@pytest.mark.parametrize("engine", ENGINES, ids=[engine.__name__ for engine in ENGINES])
@pytest.mark.parametrize("name", STORED)
def test_state_written_before_is_read_and_goes_on(name: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bucket, "engine_for", staticmethod(engine))
    before, rules = STORED[name], KINDS_OF_RULES[name.partition(",")[0]]
    assert repr(rules) == before["rules"]
    state = StoredBucket(before["engine"], before["rows"]), before["blobs"]
    results, state = step(rules, state, rows()[40:], before["watermark"])
    last, _ = step(rules, state, [], CLOSED)
    found = [*map(tuple, before["found"]), *(told(r) for r in (*results.to_pylist(), *last.to_pylist()))]
    expected = [(r.kind, r.key, r.rule, str(r.due), r.source_id) for r in rules.run(rows(), "1 hour")]
    assert Counter(found) == Counter(expected)

"""The keys that a bucket says are held, against an engine that keeps all of them awake."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from waterclock import Rules
from waterclock.rules.engine import CLOSED, NO_WATERMARK, Engine
from waterclock.rules.events import Event
from waterclock.rules.ordering import BySequence
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.state.bucket import Bucket
from waterclock.streaming.state.compiled import engine_for
from waterclock.streaming.state.held import SHOWN, HeldKey
from waterclock.streaming.state.plain import PlainEngine

SECOND_US = 1_000_000
COLUMNS = Rules(key="key", time="time", type="type", id="id", sequence="number")
BY_TIME = Rules(key="key", time="time", type="type", id="id").expect("b", after="a", within="3 s", otherwise="no b")
RULES = {
    "by time": BY_TIME,
    "skips": COLUMNS.order(wait="5 seconds"),
    "holds": COLUMNS.order(wait="5 seconds", on_gap="hold"),
    "puts aside": COLUMNS.order(wait="5 seconds", on_gap="dead_letter"),
    "as they come": COLUMNS.delay(after="a", by="2 s", emit="remind"),
}
ENGINES = [PlainEngine, engine_for]  # the second is the compiled one, where it was built
SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64()), ("id", pa.string()), ("number", pa.int64())])
Rows = list[dict[str, Any]]


def batches(keys: int, random: Random) -> list[tuple[int, Rows]]:
    """(watermark, rows) of steps: some keys each, numbers out of order, some never; the watermark is 2 seconds behind."""
    made, sent = [], dict.fromkeys((f"k{n}" for n in range(keys)), 0)
    for at in range(0, 40 * SECOND_US, SECOND_US):
        found: Rows = []
        for key in random.sample(sorted(sent), min(keys, 3)):
            for _ in range(random.randint(1, 3)):
                sent[key] += 1
                if random.random() < 0.9:
                    time = at + random.randrange(SECOND_US)
                    found.append({"key": key, "time": time, "id": f"{key}-{sent[key]}", "number": sent[key]})
        random.shuffle(found)
        made.append((max(0, at - 2 * SECOND_US), found))
    return made


def table(rows: Rows) -> pa.Table:
    found = pa.Table.from_pylist(rows, SCHEMA)
    found = found.set_column(1, "time", found.column("time").cast(TIMESTAMP))
    return found.append_column("type", pa.array(["a"] * len(rows), pa.string()))


def truth(engine: Engine) -> dict[str, HeldKey]:
    order, found = engine._order, {}
    if isinstance(order, BySequence):
        for key, gap in order._gaps.items():
            until = None if order._give_up == order._report else gap.alarm
            count = len([*gap.events()])
            found[key] = HeldKey(key, count, order._next.get(key, 1), until)
    else:
        for key, held in order._held.items() if hasattr(order, "_held") else ():
            times = [each[0] for each in held]
            found[key] = HeldKey(key, len(times), None, min(times))
    return {key: each for key, each in found.items() if each.events}  # type: ignore[misc]


@pytest.mark.parametrize("engine", ENGINES, ids=["plain", "compiled"])
@pytest.mark.parametrize("awake", [1024, 0], ids=["all awake", "all rest"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("keys", [SHOWN, 4 * SHOWN])
def test_what_is_said_of_a_key_is_so_however_long_it_rests(
    engine: Callable[..., Any], awake: int, rules: Rules, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "engine_for", staticmethod(engine))
    monkeypatch.setattr("waterclock.streaming.state.bucket.AWAKE", awake)
    stored, blobs, known, said = None, {}, Engine(rules), 0
    steps = [(NO_WATERMARK, []), *batches(keys, Random(7)), (CLOSED, [])]
    for watermark, rows in steps:
        bucket = Bucket(rules, stored, blobs)
        bucket.step([table(rows)] if rows else [], watermark)
        stored = bucket.store()
        bucket.close()
        known.step([(r["key"], Event(r["time"], r["id"], r["number"], "a", None, None)) for r in rows], watermark)
        expected = truth(known)
        assert [each for each in bucket.held_keys if each != expected.get(each.key)] == []
        counts = [each.events for each in bucket.held_keys]
        most = sorted((each.events for each in expected.values()), reverse=True)
        if awake or keys == SHOWN:
            assert counts == most[:SHOWN]
        said += len(counts)
    assert (said > 0) == (rules is not RULES["as they come"])
    assert bool(bucket.held_keys) == (rules is RULES["holds"])

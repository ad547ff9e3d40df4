"""Which engine has the rules: the compiled one all of them, where it was built."""

from __future__ import annotations

import pytest

from waterclock import Rules
from waterclock.streaming.state.blobs import BlobStore
from waterclock.streaming.state.compiled import COMPILED, engine_for
from waterclock.streaming.state.plain import PlainEngine
from waterclock.streaming.state.rows import Rows

RULES = Rules(key="k", time="at", type="what", id="id")
NUMBERED = Rules(key="k", time="at", type="what", id="id", sequence="n")
many = RULES
for number in range(65):
    many = many.delay(after="a", by=1, emit=f"{number}", where=f"n > {number}")
KNOWN = {
    "nothing": RULES,
    "ids": RULES.deduplicate("1 day"),
    "by time": RULES.order(),
    "ties": RULES.order(tie=["rank"]),
    "held": NUMBERED.order("1 day", on_gap="hold"),
    "dead letters": NUMBERED.order("1 day", on_gap="dead_letter").deliver_at("to"),
    "promised": RULES.expect("paid", after=["asked", "again"], by="to", otherwise="late", where="n > 1"),
    "65 conditions": many,
    "carried": RULES.delay(after="paid", by="1 hour", emit="remind", carry=["amount"]),
    "silence": RULES.quiet("1 hour", "quiet", where="n == 2"),
}


@pytest.mark.parametrize("rules", KNOWN.values(), ids=KNOWN)
def test_the_compiled_engine_takes_all_rules(rules: Rules) -> None:
    assert isinstance(engine_for(rules, Rows(), BlobStore({}), lambda wanted: None), PlainEngine) != COMPILED

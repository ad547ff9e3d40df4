"""Which rules the compiled engine takes, and that the plain one has the others."""

from __future__ import annotations

import pytest

from waterclock import Rules
from waterclock.spark.state.blobs import BlobStore
from waterclock.spark.state.compiled import COMPILED, engine_for
from waterclock.spark.state.compiled.knows import unknown
from waterclock.spark.state.plain import PlainEngine
from waterclock.spark.state.rows import Rows

RULES = Rules(key="k", time="at", type="what", id="id")
NUMBERED = Rules(key="k", time="at", type="what", id="id", sequence="n")
KNOWN = {
    "nothing": RULES,
    "ids": RULES.deduplicate("1 day"),
    "by time": RULES.order(),
    "held": NUMBERED.order("1 day", on_gap="hold"),
    "dead letters": NUMBERED.order("1 day", on_gap="dead_letter").deliver_at("to"),
    "promised": RULES.expect("paid", after=["asked", "again"], by="to", otherwise="late", where="n > 1"),
    "64 conditions": RULES.delay("a", "1 s", "a").expect("b", after="a", within="1 s", otherwise="c", where="n > 3"),
    "silence": RULES.quiet("1 hour", "quiet", where="n == 2"),
}
UNKNOWN = {
    "carry": RULES.delay(after="paid", by="1 hour", emit="remind", carry=["amount"]),
    "tie": RULES.order(tie=["rank"]),
}
many = RULES
for number in range(65):
    many = many.delay(after="a", by=1, emit=f"{number}", where=f"n > {number}")
UNKNOWN["where"] = many


@pytest.mark.parametrize("rules", KNOWN.values(), ids=KNOWN)
def test_the_compiled_engine_takes_the_rules_that_it_knows(rules: Rules) -> None:
    assert unknown(rules) is None
    taken = COMPILED and rules.sequence is not None  # without one, not until a fault is mended: see engine_for
    assert isinstance(engine_for(rules, Rows(), BlobStore({}), lambda wanted: None), PlainEngine) != taken


@pytest.mark.parametrize("word", UNKNOWN)
def test_the_plain_engine_takes_the_others(word: str) -> None:
    assert unknown(UNKNOWN[word]) == word
    assert isinstance(engine_for(UNKNOWN[word], Rows(), BlobStore({}), lambda wanted: None), PlainEngine)

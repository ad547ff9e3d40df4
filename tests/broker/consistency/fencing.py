"""Who is fenced commits no more; and each input of consume-transform-produce has its output once.

    fenced        a commit was acknowledged that was asked for after a later producer of the id was there
    input lost    an input that was read to the end of the campaign has no output among the committed ones
    input twice   ... has two

Rule 1: an instance of a transactional id is later than another where its init began after the other's had ended: of two
    that overlap nobody can say which one the broker took last.
Rule 2: outputs name their inputs; a campaign says by "drained" that all inputs were offered until the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.broker.consistency.checker import Violation
from tests.broker.consistency.facts import Facts
from tests.broker.consistency.history import Op

INPUT, OUTPUT = "in", "out"


def fenced(facts: Facts) -> Iterator[Violation]:
    inits: dict[str, list[Op]] = {}
    for op in facts.history.of("init"):
        inits.setdefault(op["id"], []).append(op)
    by_name = {(op.process, op.number): op for op in facts.history.of("init")}
    for txn in facts.history.of("txn"):
        own = by_name.get((txn.process, txn["instance"]))
        if own is None or not txn.ok or txn.commit_ns is None:
            continue
        for other in inits[txn["id"]]:
            if other.ok and other.begin_ns > own.end_ns and other.end_ns < txn.commit_ns:
                story = f"{txn['id']} of {txn.process} committed though {other.process} had taken its place"
                yield Violation("fenced", story, (own, other, txn))
                break


def inputs(facts: Facts) -> Iterator[Violation]:
    outputs: Counter[int] = Counter()
    makers: dict[int, list[Op]] = {}
    for value, place in facts.visible.items():
        if place[0] == OUTPUT and value in facts.writes:
            op = facts.writes[value].op
            source = op["inputs"][[one for *_, one in op["writes"]].index(value)]
            outputs[source] += 1
            makers.setdefault(source, []).append(op)
    for source, count in outputs.items():
        if count > 1:
            yield Violation("input twice", f"input {source} has {count} outputs", tuple(makers[source]))
    if facts.history.of("drained"):
        yield from _without_output(facts, outputs)


def _without_output(facts: Facts, outputs: Counter[int]) -> Iterator[Violation]:
    for (topic, partition), log in facts.committed.items():
        for offset, value in log:
            if topic == INPUT and not outputs[value]:
                yield Violation("input lost", f"input {value} at {offset} of {topic}-{partition} has no output")

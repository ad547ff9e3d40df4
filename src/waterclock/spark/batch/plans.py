"""What a DataFrame's plan holds that does not go together with rules behind it.

A pipeline has one watermark, made of all its rows, and closes by moving it past everything. A watermark of another
operator would hold it back for ever: Spark takes the least of all. And a batch that is run again after a crash must give
the same rows.

Rule 1: what is asked is Spark's analyzed plan, so a view, SQL and DataFrame calls are seen alike.
Rule 2: a static side of a join may do what it likes: only operators over streaming rows are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from waterclock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's logical operators that keep state, and what the user called
_STATEFUL = {
    "EventTimeWatermark": "withWatermark",
    "Aggregate": "an aggregation",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "Except": "EXCEPT",  # each row once, so Spark remembers them all
    "Intersect": "INTERSECT",
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Sort": "a sort",
    "Window": "a window function",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
}
_REMEDY = {
    "withWatermark": "leave it out: the pipeline makes the watermark itself, by watermark_delay",
    "dropDuplicates": "leave it out, and let the rules do it: deduplicate(within=...)",
    "dropDuplicatesWithinWatermark": "leave it out, and let the rules do it: deduplicate(within=...)",
}
_APART = "do it in a query of its own, and let the pipeline read what that writes"


def refuse_stateful(rows: DataFrame, what: str) -> None:
    """Raise UsageError where `rows`, a streaming DataFrame which is called `what`, holds state or depends on chance."""
    plan = rows._jdf.queryExecution().analyzed()
    for node in _streaming(plan):
        found = _STATEFUL.get(node.nodeName().removesuffix("All").strip())
        if node.nodeName() == "Join" and all(child.isStreaming() for child in _children(node)):
            found = "a join of two streams"
        if found:
            raise UsageError(f"{what} holds {found}, which keeps state of its own: {_REMEDY.get(found, _APART)}")
        if not node.deterministic():
            raise UsageError(
                f"{what} depends on chance (rand, uuid, a function that is not deterministic): a batch that is run again "
                "after a crash would have other rows. Compute it where the rows are made"
            )


def reads_a_stream(rows: DataFrame) -> bool:
    """Whether rows of a stream are read; what WITH names and nobody reads makes a plan of Spark's streaming, too."""
    return _reads_a_stream(rows._jdf.queryExecution().analyzed())


def _reads_a_stream(node: Any) -> bool:
    node = node.plan() if node.nodeName() == "WithCTE" else node
    children = _children(node)
    return any(map(_reads_a_stream, children)) if children else bool(node.isStreaming())


def watermarks_in(rows: DataFrame) -> int:
    """How many operators of a streaming DataFrame make a watermark."""
    nodes = _streaming(rows._jdf.queryExecution().analyzed())
    return sum(1 for node in nodes if node.nodeName() == "EventTimeWatermark")


def _streaming(plan: Any) -> Iterator[Any]:
    if plan.isStreaming():
        yield plan
        for child in _children(plan):
            yield from _streaming(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(place) for place in range(children.size())]

"""A step of the user's own, applied: SQL over a DataFrame, a function of DataFrames; and what a plan must not hold.

A pipeline has one watermark, made of all its rows, and closes by moving it past everything. A watermark of another
operator would hold it back for ever: Spark takes the least of all. And a batch that is run again after a crash must give
the same rows.

Rule 1: a step keeps no state and knows no chance: what a batch's rows become does not depend on other batches, and a batch
        that is run again becomes the same.
Rule 2: in front of the rules it is a part of the query's plan. Behind them it is applied to each batch's results on the
        driver, between step 1 and step 2 of a batch, so that dead letters and counters pass it by.
Rule 3: it is Spark's analyzed plan that is looked at, so a view, SQL and DataFrame calls are seen alike.
Rule 4: a static side of a join may do what it likes: only operators over streaming rows are looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from waterclock.errors import UsageError, unstopped
from waterclock.spark.session.worker import Beside
from waterclock.streaming import frames
from waterclock.streaming.toml.steps import Outlet, Step, columns_from, step_from, takes_from
from waterclock.streaming.toml.table import FileTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """Raise UsageError if `rows`, a streaming DataFrame which is called `what`, holds state or depends on chance."""
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


SOURCE, RESULTS = "source", "results"


def reshaped(
    sink: Any,
    *,
    query: str | None = None,
    transform: str | Callable[[Any], Any] | None = None,
    columns: Sequence[str] = (),
    takes: Sequence[str] = (),
) -> Outlet[Any]:
    """`sink`, for rows that go through `query`, SQL over `results`, and then `transform`, first; or for some `columns`.

    With `takes` it is given some of a batch only: "results", "late", "dead_letters".
    """
    from pathlib import Path

    named = (
        ("query", query),
        ("transform", transform),
        ("columns", list(columns) or None),
        ("takes", list(takes) or None),
    )
    given = {name: value for name, value in named if value is not None}
    if not given:
        raise ValueError("reshaped() needs query=, transform=, columns= or takes=, got none of them")
    table = FileTable("reshaped()", given, Path.cwd())
    return Outlet(sink, step_from(table), columns_from(table), takes_from(table))


def applied(step: Step, rows: DataFrame, name: str) -> DataFrame:
    """`rows`, which SQL knows as `name`, through the step; UsageError if it cannot be, or would keep state."""
    what = f"the step behind {name}" if name == SOURCE else f"the step in front of the sink, over {name},"
    try:
        made = _queried(step.query, rows, name) if step.query is not None else rows
        made = _called(_function_of(step), made) if step.transform is not None else made
    except PySparkException as error:
        raise UsageError(f"{what} cannot be made: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(made, DataFrame):
        raise UsageError(f"{what} must give a DataFrame, its 'transform' gave {type(made).__name__}")
    if rows.isStreaming and not reads_a_stream(made):
        raise UsageError(
            f"{what} does not read {name}: write SELECT ... FROM {name}, or use the DataFrame that is given"
        )
    if made.isStreaming:
        refuse_stateful(made, what)
    return made


class ResultStep:
    """The step behind the rules, for one pipeline: checked once, applied to each batch."""

    def __init__(self, step: Step, session: SparkSession, results: pa.Schema) -> None:
        """UsageError if it cannot be applied to results of the schema `results`."""
        self._step = step
        self._type = from_arrow_schema(results)
        self.taken = results
        self.schema = to_arrow_schema(applied(step, nothing(session, self._type), RESULTS).schema, timezone="UTC")

    def of(self, session: SparkSession, results: pa.Table) -> pa.Table:
        """What a batch's results become."""
        if not results.num_rows:
            return self.schema.empty_table()
        # Spark stops reading at an empty chunk in the middle, and the rest is lost without a word
        rows = session.createDataFrame(results.combine_chunks(), self._type)
        return frames.conform(applied(self._step, rows, RESULTS).toArrow(), self.schema)


def nothing(session: SparkSession, of: StructType) -> DataFrame:
    """A stream of these columns for Spark to analyze; it is never started."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in of.fields]
    return session.readStream.format("rate").load().select(*columns)


def _queried(query: str, rows: DataFrame, name: str) -> DataFrame:
    session, view = rows.sparkSession, f"waterclock_{uuid4().hex}"  # two pipelines of one session may start together
    rows.createTempView(view)
    try:
        return session.sql(f"WITH {name} AS (FROM {view}) (\n{query.strip().rstrip(';')}\n)")
    finally:
        session.catalog.dropTempView(view)  # the plan is resolved, and holds the rows themselves


def _called(function: Callable[[DataFrame], DataFrame], rows: DataFrame) -> DataFrame:
    try:
        return function(rows)
    except (PySparkException, UsageError):
        raise
    except Exception as error:  # the user's own code
        raise UsageError(f"'transform' failed with {type(error).__name__}: {error}") from error


def _function_of(step: Step) -> Callable[[DataFrame], DataFrame]:
    if callable(step.transform):
        return step.transform
    module, _, name = str(step.transform).partition(":")
    try:
        found = _imported(module, str(step.folder))
    except ImportError as error:
        raise UsageError(
            f"'transform' names the module {module!r}, which cannot be imported ({error}): put it beside the pipeline's "
            "file, or install it"
        ) from error
    except Exception as error:  # the user's own code, as it stands there
        raise UsageError(
            f"'transform' names the module {module!r}, which failed with {type(error).__name__}: {unstopped(error)}. "
            "Mend it"
        ) from error
    if not callable(function := getattr(found, name, None)):
        raise UsageError(f"'transform' names the function {name!r}, and the module {module!r} has none of that name")
    cloudpickle.register_pickle_by_value(found)  # a worker of Spark's does not see the folder: functions travel whole
    return function  # type: ignore[no-any-return]


def _imported(module: str, folder: str) -> ModuleType:
    """The user's module: it is looked for in `folder` first; what it imports is looked for there last, as in the workers,
    so that a random.py beside it is not taken for Python's own."""
    first, beside = module.partition(".")[0], Beside(folder)
    sys.meta_path.append(beside)
    try:
        if first not in sys.modules and (spec := PathFinder.find_spec(first, [folder])) is not None:
            assert spec.loader is not None
            sys.modules[first] = found = module_from_spec(spec)
            try:
                spec.loader.exec_module(found)
            except BaseException:
                del sys.modules[first]
                raise
        return import_module(module)
    finally:
        sys.meta_path.remove(beside)

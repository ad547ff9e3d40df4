"""What Java tells of a batch, as one text."""

from __future__ import annotations

import importlib.util
import json
from typing import Any
from unittest.mock import MagicMock

import pytest

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("needs waterclock[spark]", allow_module_level=True)

from waterclock.clock import ManualClock
from waterclock.spark.watching import listening
from waterclock.streaming.statistics import Gatherer

QUERY = "5f1bd0f4-96a5-4a48-9f92-5b2f3b8e2b11"
STATE = {
    "operatorName": "transformWithStateExec", "numRowsTotal": 16, "numRowsUpdated": 16, "numRowsRemoved": 0,
    "allUpdatesTimeMs": 5, "allRemovalsTimeMs": 0, "commitTimeMs": 3, "memoryUsedBytes": 4096,
    "numRowsDroppedByWatermark": 0, "numShufflePartitions": 2, "numStateStoreInstances": 2, "customMetrics": {},
}  # fmt: skip
TOLD = {
    "id": QUERY, "runId": QUERY, "name": "orders", "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 7,
    "batchDuration": 250, "numInputRows": 2, "durationMs": {"addBatch": 200, "walCommit": 9}, "eventTime": {},
    "stateOperators": [STATE], "sources": [], "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
}  # fmt: skip


def test_a_batch_is_told_with_the_id_of_its_query_its_phases_and_its_state() -> None:
    session, event = MagicMock(), MagicMock()
    heard: list[tuple[str, int]] = []
    event.progress.return_value.json.return_value = json.dumps(TOLD)
    gathering = Gatherer("orders", ManualClock())

    def report(query_id: str, progress: Any) -> None:
        heard.append((query_id, progress.batchId))
        gathering.heard(progress)

    with listening(session, report):
        wrapper = session._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        (told,) = wrapper.call_args.args
        told.onQueryProgress(event)
        (added,) = session.streams.addListener.call_args.args
        assert added._jlistener is wrapper.return_value
    session.streams.removeListener.assert_called_once_with(added)
    assert heard == [(QUERY, 7)]
    seen = gathering.seen("files", lambda totals: None)
    assert (seen.state_rows, seen.state_memory_bytes) == (16, 4096)
    assert seen.phases is not None
    assert (seen.phases["addBatch"].last_s, seen.phases["walCommit"].last_s) == (0.2, 0.009)

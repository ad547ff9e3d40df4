"""Marks in the rare branches of pipelines: (module, how the statement begins that a mark stands before)."""

from __future__ import annotations

PACKAGE = "waterclock."
BY_MODULE: dict[str, dict[str, str]] = {
    "streaming.topics.fetcher": {
        "a range is not whole yet": "            clock.sleep_s(_AGAIN_AFTER_S)\n",
        "a range is whole again": "        self._assign()\n        return True\n",
        "records are passed over": "        first = self._client.starts([each.place])",
    },
    "streaming.topics.planner": {"an end lies before what was read": "            latest = self._confirmed(before)\n"},
    "sinks.base": {
        "a batch was applied": "            sink.rollback()\n            return\n",
        "a sink was lost": "        written.clear()\n",
    },
    "sinks.topic.topic": {
        "a writer begins anew": '        name = f"waterclock-sink-{self._topic}"\n',
        "a look fails behind the fence": "            producer.close()\n            raise\n",
        "a topic is not known just now": '            raise SinkLost(f"the broker that answers',
    },
    "sinks.topic.topic_rows": {"a result is too large": '    sentence = f"bytes are too many'},
    "streaming.owner": {
        "a lease ran out": "        return holder\n\n    def _written(",
        "a lease is held by another run": "                raise self._refused(holder)\n",
        "a run was taken over": '            raise UsageError(\n                f"another run has taken the checkpoint',
    },
    "spark.checkpoint.reads": {
        "a note was written over": "        return StateMismatch(\n            f\"the checkpoint's file"
    },
    "streaming.state.bucket": {"keys go to rest": "            self._pages.add(all_awake.states"},
}

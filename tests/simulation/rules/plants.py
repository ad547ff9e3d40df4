"""Bugs planted in the pipeline's source, from its topics to its sinks: what universes with rules have to find."""

from __future__ import annotations

TOPIC, BUCKET = "sinks.topic.topic", "streaming.state.bucket"
MARK = "        producer.send(self._name(BATCHES), value, key, 0)\n        self._written"
PACKAGE, KINDS = "waterclock.", ("rules",)
_EDITS: dict[str, tuple[str, str, str]] = {
    "rules-applied-unseen": (
        "sinks.base", "        if sink.is_applied(batch.query_id, batch.batch_id):  # 3\n", "        if False:  # 3\n"),
    "rules-mark-in-another-transaction": (
        TOPIC, MARK, f"        producer.commit()\n        producer.begin()\n{MARK}"),
    "rules-rows-before-their-batch": (
        "sinks.sql.sql_sink", "        row = (batch.query_id,", "        self.db.commit(), self.db.begin('', True)\n"
        "        row = (batch.query_id,"),
    "rules-looked-before-fenced": (
        TOPIC, "        producer.fence()\n        self._marks = Marks()\n        try:\n            self._look()\n",
        "        self._marks = Marks()\n        self._look()\n        try:\n            producer.fence()\n"),
    "rules-nobody-fenced": (
        TOPIC, 'name = f"waterclock-sink-{self._topic}"', 'name = f"sink-{self._clock.monotonic_ns()}"'),
    "rules-offsets-for-strangers": (
        TOPIC, "if self._hold(client.starts(some), client.ends(some))", "if client.starts(some) != client.ends(some)"),
    "rules-batches-too-large": (TOPIC, "if self._limits else {}", "if False else {}"),
    "rules-watermark-early": (
        BUCKET, "        watermark = max(watermark_us,", "        self._watermarks.take(clocks)\n"
        "        watermark = max(watermark_us,"),
    "rules-watermark-of-the-first": (BUCKET, "else min((us for us in known", "else max((us for us in known"),
    "rules-watermarks-forgotten": (BUCKET, '"watermarks": self._watermarks.dump(),', '"watermarks": {},'),
    "rules-silence-passed-over": (BUCKET, "return NO_WATERMARK if None in known else", "return"),
    "rules-awake-forgotten": (BUCKET, '"awake": awake,', '"awake": b"",'),
    "rules-late-counted": ("rules.engine", "elif event.time >= self.watermark:", "elif event.time >= self.watermark - 1:"),
    "rules-id-dropped": (
        "rules.engine", "        ids[event_id] = time_us\n", "        ids = self._seen[key] = {event_id: time_us}\n"),
    "rules-horizon-by-generation": ("rules.engine", "max(time_us, watermark) <= first", "time_us <= first"),
    "rules-last-record-left": ("streaming.topics.fetcher", "if offset >= each.end - 1:", "if offset >= each.end - 2:"),
    "rules-end-is-where-it-is": (
        "streaming.topics.fetcher", "            elif each is not None and not self._comes_back(each):\n"
        "                self._lost(each, offset)\n        elif", "            elif each is not None:\n"
        "                self._finish(each.place)\n        elif"),
    "rules-aborted-read": (
        "kafka.settings", '("read_committed", "only committed', '("read_uncommitted", "only committed'),
    "rules-heartbeats-unheard": (
        "streaming.topics.records", "    return ReadRecords(rows, dead, max(beats, default=None)",
        "    return ReadRecords(rows, dead, None"),
    "rules-fresh-before-what-rested": (
        "streaming.state.compiled.engine", "                self._engine.open(number, slot)\n                for chunk in "
        "packed:\n                    self._engine.pass_chunk(*chunk)\n", "                for chunk in packed:\n"
        "                    self._engine.pass_chunk(*chunk)\n                self._engine.open(number, slot)\n"),
    "rules-in-any-order": ("spark.packing.operator", "for origin in sorted(taken)]", "for origin in taken]"),
}  # fmt: skip
TABLE = {name: (edit,) for name, edit in _EDITS.items()}
"""(module of the product, text that is there once, what stands there instead)."""

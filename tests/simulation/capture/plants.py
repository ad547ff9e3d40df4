"""Bugs planted in the capture's source: what universes with captures have to find."""

from __future__ import annotations

LOOP, KAFKA, ENDS, LAST = "cdc.capture", "cdc.produce", "kafka.transactions", "cdc.stored"
CLIENT = "kafka.client"
BOTH = "        self.store(position)\n        self.finish()\n        self.stored = position\n"
SENDS, KEPT = (
    "            self._send(topic, value, key, partition)\n",
    "self.__dict__.setdefault('_kept', [])",
)
STORED = "            position = publisher.stored or"
PACKAGE, KINDS = "waterclock.", ("capture",)
TABLE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "capture-position-apart": ((
        KAFKA, BOTH, f"        if self._producer.is_open:\n            self.finish()\n{BOTH}"),),
    "capture-position-first": (
        (KAFKA, SENDS, f"            {KEPT}.append((topic, value, key, partition))\n"),
        (KAFKA, BOTH, f"        self.store(position)\n        self.finish()\n        for one in {KEPT}:\n"
            f"            self.begin()\n            self._producer.send(*one)\n        {KEPT}.clear()\n"
            "        if self._producer.is_open:\n            self.finish()\n        self.stored = position\n"),
    ),
    "capture-fenced-late": (
        (KAFKA, "        self.fence()\n        self.stored = last_position(settings, self._state_topic, clock)  # 2\n",
            "        self.stored = last_position(settings, self._state_topic, clock)\n        self.fence()\n"),
    ),
    "capture-id-of-its-own": ((
        KAFKA, 'f"waterclock-cdc-{name}", partial', 'f"waterclock-cdc-{name}-{clock.monotonic_ns()}", partial'),),
    "capture-sent-again": (
        (ENDS, "self._ask(self.producer.commit_transaction, math.inf)",
            "self._ask(self.producer.commit_transaction, 0)"),
        (LOOP, STORED, "            position = self.__dict__.get('_kept') or publisher.stored or"),
        (LOOP, "        self._report(self._statistics)\n",
            "        self._report(self._statistics)\n        self._kept = self._of.stored\n"),
        (LOOP, "            source = self._source(position)\n",
            "            source, self._of = self._source(position), publisher\n"),
    ),
    "capture-cut-at-most": ((
        LOOP, "        elif self._inside and self._rows % LARGEST == 0 and record.gtid:\n"
        "            self._commit(self._source.position()._replace(rows=self._rows, inside=record.gtid))\n",
        "        elif self._inside and self._publisher.uncommitted >= MOST:\n"
        "            self._commit(self._source.position())\n"),),
    "capture-part-miscounted": ((LOOP, "_replace(rows=self._rows, inside", "_replace(rows=self._rows + 1, inside"),),
    "capture-part-forgotten": ((LOOP, "self._count, rows, requests)", "self._count, 0, requests)"),),
    "capture-pause-within": ((
        LOOP, "if self._moved and not self._inside:", "if self._moved:"),),
    "capture-stored-early": ((
        LOOP, "        self._publisher.commit(position)\n        if letters:",
        "        self._source.stored(position)\n        self._publisher.commit(position)\n        if letters:"),),
    "capture-start-forgotten": ((
        LOOP, "                    publisher.commit(position)\n", "                    pass\n"),),
    "capture-position-unseen": ((LAST, " or deque(read(start=low), maxlen=1)", ""),),
    "capture-position-uncommitted": ((
        CLIENT, "{**settings, **READING,", "{**settings, **READING, 'isolation.level': 'read_uncommitted',"),
        (CLIENT, "{**_SOON, **settings, **READING,",
            "{**_SOON, **settings, **READING, 'isolation.level': 'read_uncommitted',"),),
    "capture-rest-undelivered": ((LOOP, "                if self._undelivered is None:\n", "                if True:\n"),),
    "capture-truncate-once": ((
        KAFKA, "            chosen = range(partitions)\n", "            chosen = (0,)\n"),),
    "capture-keys-spread": ((
        KAFKA, "        chosen: Iterable[int] = (BY_KEY,) if key is not None else (number % partitions,)\n",
        "        chosen: Iterable[int] = (self.uncommitted % partitions,)\n"),),
    "capture-fenced-tried-again": ((
        LOOP, "            self._fenced.refuse_if_overtaken()\n", "            pass\n"),),
}  # fmt: skip
"""Of each: (module, text that is there once, what stands there instead)."""

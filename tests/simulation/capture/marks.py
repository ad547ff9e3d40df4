"""Marks in the capture's rare branches: (module, how the statement begins that a mark stands before)."""

from __future__ import annotations

PACKAGE = "waterclock.cdc."
BY_MODULE: dict[str, dict[str, str]] = {
    "capture": {
        "a capture commits a part": "            self._commit(self._source.position()._replace(rows",
        "a capture keeps where it began": "                    publisher.commit(position)\n",
        "a capture survives a break": "                self._lost(",
        "a capture gives up": "                    raise ConnectionLost(str(error)) from None\n",
        "a capture hears a signal": "                raise KeyboardInterrupt\n",
        "a capture was within what is bad": "            return self._source.position().place\n",
        "a capture delivers what is before": "                refusal, end, self._undelivered = error",
        "a capture asks whether another is there": "            self._fenced.refuse_if_overtaken()\n",
        "a capture puts letters aside": '            log.warning("%s put aside, unreadable',
    },
    "produce": {
        "a capture makes a topic": "            self._admin.make(topic, wanted)\n",
        "a capture meets a table": "            topic = self._names.of(database, table)\n",
        "a capture truncates": "            chosen = range(partitions)\n",
        "a capture is overtaken": "            raise UsageError(_overtaken(",
        "a capture is fenced": "        return NameLost(",
    },
}

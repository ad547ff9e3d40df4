"""Kafka as several parts need it, over confluent-kafka.

settings.py      librdkafka's settings: where they come from, which of them keep a promise
errors.py        what Kafka's errors mean
patience.py      how long an answer is waited for, how often something is tried again
client.py        what a reader asks: which partitions there are, from where to where they go; their committed records
admin.py         topics listed, made and looked at
transactions.py  one producer at a time, and all that it sends at once or nothing

Rule 1: importing this, patience.py and settings.py needs nothing outside the standard library; the others need the extra
    `kafka`.
"""

from __future__ import annotations

Partition = tuple[str, int]  # topic, number
Offsets = dict[Partition, int]

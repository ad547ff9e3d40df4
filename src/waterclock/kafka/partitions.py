"""Partitions and offsets as numbers. No Kafka client in this file."""

from __future__ import annotations

Partition = tuple[str, int]  # topic, number
Offsets = dict[Partition, int]

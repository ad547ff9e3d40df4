"""The one door to Kafka's client: what talks to a broker. In production it is confluent-kafka's own.

Rule 1: `kafka`, `relay` and `cdc` make consumers, producers and admin clients by these names (`library.Consumer(...)`), at
    the call: the simulation puts its own in their place. Values (errors, messages, places) are confluent-kafka's always.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

__all__ = ["AdminClient", "Consumer", "Producer"]

"""The simulation's client behind the product's door to Kafka's (kafka/library.py)."""

from __future__ import annotations

from tests.simulation.confluent.admin import AdminClient
from tests.simulation.confluent.consumer import Consumer
from tests.simulation.confluent.producer import Producer
from waterclock.kafka import library


def install() -> None:
    """Whoever makes a client from now on makes one of these."""
    for name, kind in {"AdminClient": AdminClient, "Consumer": Consumer, "Producer": Producer}.items():
        setattr(library, name, kind)

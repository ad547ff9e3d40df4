"""A small Kafka client for simulated processes, by encoders of its own: a mistake of the product's is not read back by the
same mistake."""

from tests.simulation.kafka.client import Kafka
from tests.simulation.kafka.connection import Gone

__all__ = ["Gone", "Kafka"]

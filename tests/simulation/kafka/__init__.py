"""A small Kafka client for simulated processes: its own encoding, in versions without tagged fields where there are any.

It shares nothing with the product: a mistake of the product's encoder is not read back by the same mistake.
"""

from tests.simulation.kafka.client import Kafka
from tests.simulation.kafka.connection import Gone

__all__ = ["Gone", "Kafka"]

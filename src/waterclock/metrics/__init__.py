"""Numbers for Prometheus: their text, and a door at which it is asked for. What the numbers are, each room knows itself."""

from waterclock.metrics.server import MetricsServer
from waterclock.metrics.text import Metric, Sample, text

__all__ = ["Metric", "MetricsServer", "Sample", "text"]

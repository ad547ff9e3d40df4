"""Numbers for Prometheus: their text, and a door at which it is asked for. What the numbers are, each room knows itself."""

from waterclock.web.metrics import Metric, Sample, text
from waterclock.web.server import MetricsServer

__all__ = ["Metric", "MetricsServer", "Sample", "text"]

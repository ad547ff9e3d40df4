"""Where results are kept, each batch with its offsets in one transaction."""

from waterclock.sinks.base import Applied, Batch, Sink, apply_once, check_belongs
from waterclock.sinks.sqlite import SQLiteSink

__all__ = ["Applied", "Batch", "SQLiteSink", "Sink", "apply_once", "check_belongs"]

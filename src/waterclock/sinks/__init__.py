"""Where results are kept, each batch with its offsets in one transaction."""

from typing import TYPE_CHECKING, Any

from waterclock.sinks.base import Applied, Batch, Sink, apply_once, check_belongs
from waterclock.sinks.mirror import Mirror
from waterclock.sinks.replica import Replica
from waterclock.sinks.sqlite import SQLiteSink

if TYPE_CHECKING:
    from waterclock.sinks.postgres import PostgresSink

__all__ = ["Applied", "Batch", "Mirror", "PostgresSink", "Replica", "SQLiteSink", "Sink", "apply_once", "check_belongs"]


def __getattr__(name: str) -> Any:
    """`PostgresSink` on first use: it needs the packages of the extra `postgres`."""
    if name != "PostgresSink":
        raise AttributeError(f"module 'waterclock.sinks' has no attribute {name!r}")
    from waterclock.sinks.postgres import PostgresSink

    return PostgresSink

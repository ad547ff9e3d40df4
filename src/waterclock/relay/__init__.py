"""Delayed messages: an owner of input partitions, its files of what is pending, and what is due soon in a timing wheel."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waterclock.relay.async_delays import AsyncDelays
    from waterclock.relay.delays import Delays
    from waterclock.relay.delivery import Delivery
    from waterclock.relay.retries import Retries, RetryAfter
    from waterclock.relay.sending import Answer, Receipt

__all__ = ["Answer", "AsyncDelays", "Delays", "Delivery", "Receipt", "Retries", "RetryAfter"]

_HOME = {
    "Answer": "sending",
    "AsyncDelays": "async_delays",
    "Delays": "delays",
    "Delivery": "delivery",
    "Receipt": "sending",
    "Retries": "retries",
    "RetryAfter": "retries",
}


def __getattr__(name: str) -> Any:
    """On first use: a command's options need none of them."""
    if name not in _HOME:
        raise AttributeError(f"module 'waterclock.relay' has no attribute {name!r}")
    return getattr(import_module(f"waterclock.relay.{_HOME[name]}"), name)

"""Delayed messages: an owner of input partitions, its files of what is pending, and what is due soon in a timing wheel."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waterclock.relay.client.async_delays import AsyncDelays
    from waterclock.relay.client.delays import Delays
    from waterclock.relay.client.sending import Answer, Receipt
    from waterclock.relay.handlers.retries import Delivery, Retries, RetryAfter

__all__ = ["Answer", "AsyncDelays", "Delays", "Delivery", "Receipt", "Retries", "RetryAfter"]

_HOME = {
    "Answer": "client.sending",
    "AsyncDelays": "client.async_delays",
    "Delays": "client.delays",
    "Delivery": "handlers.retries",
    "Receipt": "client.sending",
    "Retries": "handlers.retries",
    "RetryAfter": "handlers.retries",
}


def __getattr__(name: str) -> Any:
    """On first use: a command's options need none of them."""
    if name not in _HOME:
        raise AttributeError(f"module 'waterclock.relay' has no attribute {name!r}")
    return getattr(import_module(f"waterclock.relay.{_HOME[name]}"), name)

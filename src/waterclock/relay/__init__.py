"""Delayed messages: an owner of input partitions, its files of what is pending, and what is due soon in a timing wheel."""

from typing import TYPE_CHECKING

from waterclock.errors import pip_install
from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.relay.client.async_delays import AsyncDelays
    from waterclock.relay.client.delays import Delays
    from waterclock.relay.client.outbox import outbox_table
    from waterclock.relay.client.sending import Answer, Receipt
    from waterclock.relay.handlers.retries import Delivery, Retries, RetryAfter

__all__ = ["Answer", "AsyncDelays", "Delays", "Delivery", "Receipt", "Retries", "RetryAfter", "outbox_table"]

_HOME = {
    "Answer": "waterclock.relay.client.sending",
    "AsyncDelays": "waterclock.relay.client.async_delays",
    "Delays": "waterclock.relay.client.delays",
    "Delivery": "waterclock.relay.handlers.retries",
    "Receipt": "waterclock.relay.client.sending",
    "Retries": "waterclock.relay.handlers.retries",
    "RetryAfter": "waterclock.relay.handlers.retries",
    "outbox_table": "waterclock.relay.client.outbox",
}
# a command's options need none of them
__getattr__ = first_use(__name__, _HOME, lambda: pip_install("relay", "broker"))

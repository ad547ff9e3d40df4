"""The listener that a broker's `Access` asks for: with TLS or without, open or only for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.net.connection import Connection
from waterclock.broker.net.listener import Connect, Listener

if TYPE_CHECKING:
    from waterclock.broker.security.access import Access
    from waterclock.broker.settings import Settings

LARGEST_UNKNOWN: Final = 512 << 10  # bytes of a request, before it is known who sends it


def listener_for(loop: Any, address: tuple[str, int], settings: Settings, timer: Any, access: Access) -> Listener:
    """A listener on `address`; UsageError if certificate and key are none."""
    connect: Connect = Connection
    context = access.context()
    if context is not None:
        from waterclock.broker.net import tls

        connect = tls.connector(context)
    listener = Listener(loop, address, settings, timer, connect)
    if access.users:
        listener.largest_unknown = min(listener.largest_request, LARGEST_UNKNOWN)
    return listener

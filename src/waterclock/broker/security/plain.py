"""PLAIN: a user says name and password. Over TLS, or on one machine. RFC 4616."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from waterclock.broker.security.scram import AccessDenied

PLAIN: Final = "PLAIN"


class Plain:
    """The server's side of one exchange, of one message. `user` is set once it is shown who it is."""

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        self.user: str | None = None
        self._check = check

    def step(self, token: bytes) -> bytes:
        """An empty answer; AccessDenied if name and password do not fit."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise AccessDenied(f"A PLAIN message has 3 parts, got {len(parts)}")
        authorized, name, password = parts
        if not name or not password:
            raise AccessDenied("Authentication failed: a user name and a password are needed")
        if not self._check(name, password):
            raise AccessDenied("Authentication failed: Invalid username or password")
        if authorized not in ("", name):
            raise AccessDenied("Authentication failed: to act as somebody else is not possible here")
        self.user = name
        return b""

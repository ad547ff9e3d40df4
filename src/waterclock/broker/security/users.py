"""The users: those of the start, from a file or the environment, and those that clients made, from the store.

A line is `name:password`, or `name:SCRAM-SHA-256$4096:SALT$STORED_KEY:SERVER_KEY`; lines that begin with # are left out.
The first kind may use every mechanism, the second its own; users made by clients have SCRAM only.

Rule 1: no password is kept, neither on the disk nor in memory: PLAIN is checked against a digest keyed by this process.
Rule 2: a user of the start is changed where it stands: clients cannot.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable
from typing import Any, Final

from waterclock.broker.security.plain import PLAIN, Plain
from waterclock.broker.security.scram import HASHES, Credential, Scram, read
from waterclock.broker.store import Change, Store
from waterclock.errors import UsageError

ROOM: Final = "scram"
MECHANISMS: Final = (PLAIN, *HASHES)
Key = tuple[str, str]  # mechanism and name


class Users:
    """Everybody known, from `lines` and `store`; UsageError where a line is none."""

    def __init__(self, lines: Iterable[str], store: Store) -> None:
        self._zeal = secrets.token_bytes(32)
        self._digests: dict[str, bytes] = {}
        self.fixed: set[str] = set()
        self.credentials: dict[Key, Credential] = {}
        for kept in store.load(ROOM).values():
            self.credentials[kept["mechanism"], kept["name"]] = _credential(kept)
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                self._add(number, line.rstrip("\r\n"))

    def _add(self, number: int, line: str) -> None:
        name, colon, secret = line.partition(":")
        if not (name and colon and secret):  # the line itself is not told: it may be a password
            raise UsageError(f"line {number} of the users is not of the form name:password")
        if name in self.fixed and not secret.startswith("SCRAM-"):
            raise UsageError(f"line {number} of the users: {name} stands there twice")
        self._forget(name)
        if not secret.startswith("SCRAM-SHA-"):
            self._digests[name] = self._digest(secret)
            self.credentials.update({(m, name): Credential.of_password(m, secret) for m in HASHES})
            return
        try:
            mechanism, credential = read(secret)
        except ValueError as error:
            raise UsageError(f"line {number} of the users, {name}: {error}") from None
        self.credentials[mechanism, name] = credential

    def _forget(self, name: str) -> None:
        """What the store has of a user of the start does not count."""
        if name not in self.fixed:
            self.fixed.add(name)
            for mechanism in HASHES:
                self.credentials.pop((mechanism, name), None)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._zeal, password.encode(errors="surrogateescape"), "sha256")

    def exchange(self, mechanism: str) -> Plain | Scram:
        """The server's side of a mechanism, one of MECHANISMS."""
        if mechanism == PLAIN:
            return Plain(self.check)
        return Scram(mechanism, lambda name: self.credentials.get((mechanism, name)))

    def check(self, name: str, password: str) -> bool:
        """Whether this is the user's password; as long for one who is not known."""
        digest = self._digests.get(name, b"")
        return hmac.compare_digest(digest, self._digest(password))


def change(key: Key, credential: Credential | None) -> Change:
    """The store's change for a credential; None takes it away."""
    mechanism, name = key
    value: dict[str, Any] | None = None
    if credential is not None:
        parts = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
        texts = {part: base64.b64encode(value).decode() for part, value in parts.items()}
        value = {"mechanism": mechanism, "name": name, "iterations": credential.iterations, **texts}
    return Change(ROOM, f"{mechanism}/{name}", value)


def _credential(kept: dict[str, Any]) -> Credential:
    salt, stored, server = (base64.b64decode(kept[part]) for part in ("salt", "stored_key", "server_key"))
    return Credential(salt, kept["iterations"], stored, server)

"""The users: those of the start, from a file or the environment, and those that clients made, from the store.

A line is `name:password`, or `name:SCRAM-SHA-256$4096:SALT$STORED_KEY:SERVER_KEY`; lines that begin with # are left out.
The first kind may use every mechanism, the second its own; users made by clients have SCRAM only.

Rule 1: no password is kept, neither on the disk nor in memory: PLAIN is checked against a digest keyed by this process.
Rule 2: a user of the start is changed in its file: clients cannot.
"""

from __future__ import annotations

import base64
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from waterclock.broker.security.link import PLAIN
from waterclock.broker.security.scram import HASHES, AccessDenied, Credential, Scram, read
from waterclock.broker.store import Entry, Store
from waterclock.errors import UsageError
from waterclock.outside import secrets

NAMESPACE: Final = "scram"
MECHANISMS: Final = (PLAIN, *HASHES)
CredentialKey = tuple[str, str]  # mechanism and name


class Line(NamedTuple):
    """One user of the start: with a password, or with a credential for one mechanism."""

    name: str
    password: str | None
    mechanism: str = ""
    credential: Credential | None = None


def parsed(lines: Iterable[str]) -> list[Line]:
    """The users; UsageError if a line is none, or the same user stands there twice.

    >>> parsed(["# who may come in", "alice:secret"])
    [Line(name='alice', password='secret', mechanism='', credential=None)]
    """
    found = [_line(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    for (name, mechanism), times in Counter((line.name, line.mechanism) for line in found).items():
        mixed = not mechanism and any(line.name == name and line.mechanism for line in found)
        if times > 1 or mixed:
            raise UsageError(f"{name!r} stands twice among the users: leave one line of it")
    return found


def _line(number: int, line: str) -> Line:
    name, colon, secret = line.partition(":")
    if not (name and colon and secret):  # the error leaves the line out: it may be a password
        raise UsageError(f"line {number} of the users is not of the form name:password")
    if not secret.startswith("SCRAM-SHA-"):
        return Line(name, secret)
    try:
        return Line(name, None, *read(secret))
    except ValueError as error:
        raise UsageError(f"line {number} of the users, {name}: {error}") from None


class Users:
    """Everybody known, from `lines` and `store`; UsageError as `parsed`."""

    def __init__(self, lines: Iterable[str], store: Store) -> None:
        self._zeal = secrets.token_bytes(32)
        self._digests: dict[str, bytes] = {}
        own = parsed(lines)
        self.fixed = {line.name for line in own}
        self.credentials: dict[CredentialKey, Credential] = {}
        for line in own:
            if line.password is not None:
                self._digests[line.name] = self._digest(line.password)
                derived = {(m, line.name): Credential.of_password(m, line.password) for m in HASHES}
                self.credentials.update(derived)
            elif line.credential is not None:
                self.credentials[line.mechanism, line.name] = line.credential
        self.read_again(store)

    def read_again(self, store: Store) -> None:
        """Of the users that clients made, those that are in the store now."""
        self.credentials = {key: credential for key, credential in self.credentials.items() if key[1] in self.fixed}
        for kept in store.load(NAMESPACE).values():
            if kept["name"] not in self.fixed:
                salt, stored, server = (base64.b64decode(kept[part]) for part in ("salt", "stored_key", "server_key"))
                credential = Credential(salt, kept["iterations"], stored, server)
                self.credentials[kept["mechanism"], kept["name"]] = credential

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._zeal, password.encode(errors="surrogateescape"), "sha256")

    def take(self, changed: Mapping[CredentialKey, Credential | None]) -> None:
        """Credentials that are durable hold from now on; None takes one away."""
        for key, credential in changed.items():
            if credential is None:
                self.credentials.pop(key, None)
            else:
                self.credentials[key] = credential

    def exchange(self, mechanism: str) -> Plain | Scram:
        """The server's side of a mechanism, one of MECHANISMS."""
        if mechanism == PLAIN:
            return Plain(self.check)
        return Scram(mechanism, lambda name: self.credentials.get((mechanism, name)))

    def check(self, name: str, password: str) -> bool:
        """Whether this is the user's password; as long for one who is not known."""
        digest = self._digests.get(name, b"")
        return hmac.compare_digest(digest, self._digest(password))


class Plain:
    """PLAIN: a user says name and password, over TLS or on one machine. The server's side of one exchange, of one message.

    `user` is set once it is shown who it is. Source: RFC 4616.
    """

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


def change(key: CredentialKey, credential: Credential | None) -> Entry:
    """The store's change for a credential; None takes it away."""
    mechanism, name = key
    value: dict[str, Any] | None = None
    if credential is not None:
        parts = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
        texts = {part: base64.b64encode(value).decode() for part, value in parts.items()}
        value = {"mechanism": mechanism, "name": name, "iterations": credential.iterations, **texts}
    return Entry(NAMESPACE, f"{mechanism}/{name}", value)

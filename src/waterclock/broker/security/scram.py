"""SCRAM: a user shows that it knows the password, the server that it knows of it, and neither says it.

    client  n,,n=alice,r=NONCE
    server  r=NONCE+OURS,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+OURS,p=PROOF
    server  v=SIGNATURE

Rule 1: only what is needed to check a proof is kept: StoredKey and ServerKey, from which no password and no proof follows.
Rule 2: a user that is not known gets a salt all the same, always the same one, and fails at the proof: the exchange does
    not show who is known.
Rule 3: no channel binding; a client that could bind ("y") is let in, one that insists ("p=") is not.
Rule 4: as a client, this broker does not speak to a server that does not prove that it has the user's keys: it may be
    anybody who listens there.
Rule 5: few iterations would let such a one find the password in what it was sent, and many would keep this one busy: both
    are refused.
Source: RFC 5802, RFC 7677; the text form of a credential is RFC 5803's. The names of the keys are theirs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from waterclock.outside import secrets

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
TEXT: Final = re.compile(r"(SCRAM-SHA-(?:256|512))\$(\d+):([^$]+)\$([^:]+):(.+)")
FIRST: Final = re.compile(r"([ny],(?:a=([^,]*))?,)(n=([^,]*),r=([!-+\--~]+)(?:,.*)?)", re.DOTALL)
FINAL: Final = re.compile(r"(c=([^,]+),r=([^,]+)(?:,[^p].*)?),p=([^,]+)", re.DOTALL)
ZEAL: Final = secrets.token_bytes(32)  # of this process, for Rule 2


class AccessDenied(Exception):
    """The user is not let in; the message may go to the client and holds no secret."""


class Credential(NamedTuple):
    """What is kept of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
        """From the password as the client has salted it."""
        hash_ = HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", hash_)
        stored_key = hashlib.new(hash_, client_key).digest()
        return cls(salt, iterations, stored_key, hmac.digest(salted_password, b"Server Key", hash_))

    @classmethod
    def of_password(cls, mechanism: str, password: str) -> Credential:
        """From a password, with a fresh salt."""
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(errors="surrogateescape"), salt, ITERATIONS)
        return cls.of(mechanism, salted, salt, ITERATIONS)

    def text(self, mechanism: str) -> str:
        """One line, for a file of users."""
        salt, stored, server = (base64.b64encode(b).decode() for b in (self.salt, self.stored_key, self.server_key))
        return f"{mechanism}${self.iterations}:{salt}${stored}:{server}"


def read(text: str) -> tuple[str, Credential]:
    """Mechanism and credential of a line; ValueError if it is none.

    >>> made = Credential.of_password("SCRAM-SHA-256", "secret")
    >>> read(made.text("SCRAM-SHA-256")) == ("SCRAM-SHA-256", made)
    True
    """
    match = TEXT.fullmatch(text)
    if match is None:
        raise ValueError("not of the form MECHANISM$ITERATIONS:SALT$STORED_KEY:SERVER_KEY")
    try:
        salt, stored, server = (base64.b64decode(part, validate=True) for part in match.groups()[2:])
    except binascii.Error as error:
        raise ValueError("salt and keys must be base64") from error
    size = hashlib.new(HASHES[match[1]]).digest_size
    if len(stored) != size or len(server) != size:
        raise ValueError(f"the keys of {match[1]} have {size} bytes")
    return match[1], Credential(salt, int(match[2]), stored, server)


class Scram:
    """The server's side of one exchange. `user` is set once it is shown who it is."""

    def __init__(self, mechanism: str, find: Callable[[str], Credential | None]) -> None:
        self.user: str | None = None
        self._name = ""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._credential: Credential | None = None
        self._header = self._nonce = self._said = ""

    def step(self, token: bytes) -> bytes:
        """The answer to a client's message; AccessDenied if it ends here."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise self._denied() from None
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _denied(self) -> AccessDenied:
        return AccessDenied(f"Authentication failed: invalid credentials for {self._mechanism}")

    def _first(self, text: str) -> bytes:
        match = FIRST.fullmatch(text)
        if match is None:
            raise self._denied()
        self._header, authorized, bare, name, nonce = match.groups()
        self._name = name.replace("=2C", ",").replace("=3D", "=")
        if authorized and authorized != name:
            raise AccessDenied("Authentication failed: to act as somebody else is not possible here")
        self._credential = credential = self._find(self._name) or self._nobody()
        self._nonce = nonce + secrets.token_urlsafe(18)
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{bare},{answer}"
        return answer.encode()

    def _nobody(self) -> Credential:
        """The credential of a user who is not known: no proof fits it. Rule 2."""
        salt = hmac.digest(ZEAL, self._name.encode(), "sha256")[:16]
        size = hashlib.new(self._hash).digest_size
        return Credential(salt, ITERATIONS, secrets.token_bytes(size), secrets.token_bytes(size))

    def _final(self, text: str, credential: Credential) -> bytes:
        match = FINAL.fullmatch(text)
        if match is None or match[2] != base64.b64encode(self._header.encode()).decode() or match[3] != self._nonce:
            raise self._denied()
        said = f"{self._said},{match[1]}".encode()
        if not self._proves(match[4], said, credential):
            raise self._denied()
        self.user = self._name
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, said, self._hash))

    def _proves(self, proof: str, said: bytes, credential: Credential) -> bool:
        """Whether the client's key, taken out of its proof, is the one whose hash is kept."""
        try:
            given = base64.b64decode(proof, validate=True)
        except binascii.Error:
            return False
        signature = hmac.digest(credential.stored_key, said, self._hash)
        if len(given) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)


TAKEN_ITERATIONS: Final = range(4096, 1_000_000)
SERVERS_FIRST: Final = re.compile(r"r=([!-+\--~]+),s=([^,]+),i=(\d{1,7})(?:,.*)?")


class ScramClient:
    """The client's side of one exchange as `user`: `first()`, then `final(answer)`, then `check(answer)`.

    >>> ScramClient("SCRAM-SHA-256", "a,b", "secret").first().startswith(b"n,,n=a=2Cb,r=")
    True
    """

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self._hash, self._password = HASHES[mechanism], password
        self._nonce = secrets.token_urlsafe(18)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The proof, after the server's first answer; AccessDenied if that is none."""
        said = answer.decode(errors="replace")
        nonce, salt, iterations = self._read(said)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(errors="surrogateescape"), salt, iterations)
        without = f"c=biws,r={nonce}"
        whole = f"{self._bare},{said},{without}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signed = hmac.digest(hashlib.new(self._hash, client_key).digest(), whole, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signed, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), whole, self._hash)
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def _read(self, said: str) -> tuple[str, bytes, int]:
        match = SERVERS_FIRST.fullmatch(said)
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise AccessDenied("the server's first message is not of SCRAM, or not for this client")
        if int(match[3]) not in TAKEN_ITERATIONS:
            raise AccessDenied(
                f"the server asks for {match[3]} iterations; from {TAKEN_ITERATIONS.start} on they are taken"
            )
        try:
            return match[1], base64.b64decode(match[2], validate=True), int(match[3])
        except binascii.Error:
            raise AccessDenied("the server's salt is not base64") from None

    def check(self, answer: bytes) -> None:
        """AccessDenied if the server did not prove that it knows the user. Rule 4."""
        expected = b"v=" + base64.b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(answer.split(b",")[0], expected):
            raise AccessDenied("the server did not prove that it knows this user")

"""SCRAM from the other side: this broker shows another that it knows a password, and hears that the other knows of it.

Rule 1: a server that does not prove that it has the user's keys is not spoken to: it may be anybody who listens there.
Rule 2: few iterations would let such a one find the password in what it was sent, and many would keep this one busy: both
    are refused.
Source: RFC 5802, RFC 7677; the names of the keys are theirs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

from waterclock.broker.security.scram import HASHES, AccessDenied

ITERATIONS: Final = range(4096, 1_000_000)
FIRST: Final = re.compile(r"r=([!-+\--~]+),s=([^,]+),i=(\d{1,7})(?:,.*)?")


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
        match = FIRST.fullmatch(said)
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise AccessDenied("the server's first message is not of SCRAM, or not for this client")
        if int(match[3]) not in ITERATIONS:
            raise AccessDenied(f"the server asks for {match[3]} iterations; from {ITERATIONS.start} on they are taken")
        try:
            return match[1], base64.b64decode(match[2], validate=True), int(match[3])
        except binascii.Error:
            raise AccessDenied("the server's salt is not base64") from None

    def check(self, answer: bytes) -> None:
        """AccessDenied if the server did not prove that it knows the user. Rule 1."""
        expected = b"v=" + base64.b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(answer.split(b",")[0], expected):
            raise AccessDenied("the server did not prove that it knows this user")

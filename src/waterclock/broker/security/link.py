"""The link between two brokers: as whom each logs in at the other, and how it knows that it is the other.

Rule 1: a password goes out by SCRAM, which does not say it; by PLAIN only inside of TLS.
Rule 2: with certificates (`ca`) the link is TLS or nothing, and the other's certificate must be for its address.
Rule 3: the password comes from a file that nobody else may read, or from the environment: never from the command line.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from waterclock.broker.security.scram import HASHES
from waterclock.errors import UsageError
from waterclock.outside import open_file, os

if TYPE_CHECKING:
    import ssl

PLAIN: Final = "PLAIN"
LOGIN: Final = "WATERCLOCK_LINK_LOGIN"
MECHANISMS: Final = (*HASHES, PLAIN)


@dataclass(frozen=True)
class LinkAccess:
    """`user` and `password` for the other broker; without them nobody is logged in. `ca` is a PEM file of certificates
    that the other's is checked against; without it there is no TLS.

    >>> LinkAccess("replica", "secret")
    LinkAccess(user='replica', mechanism='SCRAM-SHA-256', ca=None)
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str = "SCRAM-SHA-256"
    ca: str | None = None

    def check(self) -> None:
        """UsageError if another broker cannot be spoken to like this."""
        if (self.user is None) != (self.password is None) or self.user == "" or self.password == "":
            raise UsageError("the link's login is a user and a password: give both, as name:password")
        if self.mechanism not in MECHANISMS:
            raise UsageError(f"--link-mechanism takes {', '.join(MECHANISMS)}, got {self.mechanism!r}")
        if self.user is not None and self.mechanism == PLAIN and self.ca is None:
            raise UsageError("--link-mechanism PLAIN sends the password as it is: give --link-ca, or leave it at SCRAM")
        self.context()

    def context(self) -> ssl.SSLContext | None:
        """TLS as a client, 1.2 or newer; None if there is none. UsageError if the file holds no certificates."""
        if self.ca is None:
            return None
        import ssl

        try:
            made = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise UsageError(f"--link-ca {self.ca}: {error}") from error
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        return made


OPEN: Final = LinkAccess()


def check_private(path: str, option: str) -> None:
    """UsageError if others than its owner may read or write the file, or if it cannot be read."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{option} {path} may be read by others than you: chmod 600 {path}")


def login_of(path: str | None, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """User and password of a file's only line, name:password, or without a file of the environment; UsageError.

    >>> login_of(None, {"WATERCLOCK_LINK_LOGIN": "replica:secret"})
    ('replica', 'secret')
    """
    where = f"--link-login {path}" if path is not None else LOGIN
    line = environment.get(LOGIN, "") if path is None else _line(path)
    if path is None and not line:
        return None, None
    name, colon, password = line.partition(":")
    if not (name and colon and password):  # the error leaves the line out: it may be a password
        raise UsageError(f"{where} is not of the form name:password")
    return name, password


def _line(path: str) -> str:
    check_private(path, "--link-login")
    with open_file(path, encoding="utf-8", errors="surrogateescape") as file:
        lines = [line for line in file.read().splitlines() if line.strip() and not line.startswith("#")]
    if len(lines) != 1:
        raise UsageError(f"--link-login {path} has {len(lines)} lines: write one, name:password")
    return lines[0]

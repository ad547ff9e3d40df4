"""How a broker is reached and by whom: users, TLS, addresses. What cannot be safe is refused before anything listens.

Rule 1: beyond this machine only with users and TLS, unless `insecure_remote` says that this is meant.
Rule 2: secrets come from files that nobody else may read, or from the environment; never from the command line, where
    `ps` shows them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.net.connection import Connection
from waterclock.broker.net.listener import Connect, Listener, connector
from waterclock.broker.security.link import OPEN, LinkAccess, check_private
from waterclock.broker.security.users import parsed
from waterclock.errors import UsageError
from waterclock.outside import open_file

if TYPE_CHECKING:
    import ssl

    from waterclock.broker.settings import Settings

USERS: Final = "WATERCLOCK_USERS"
LARGEST_UNKNOWN: Final = 512 << 10  # bytes of a request, before it is known who sends it


@dataclass(frozen=True)
class Access:
    """`users` are lines as `users.py` has them; with any, clients must say who they are.

    `tls_cert` and `tls_key` are PEM files, and go together. `advertise` (HOST or HOST:PORT) is where clients are to
    connect to, where that is not where the broker listens. `link` is as whom this broker speaks to the other one of its
    pair, and with users the only one who may follow it.

    >>> Access(users=("alice:secret",))
    Access(tls_cert=None, tls_key=None, advertise=None, insecure_remote=False)
    """

    users: tuple[str, ...] = field(default=(), repr=False)
    tls_cert: str | None = None
    tls_key: str | None = None
    advertise: str | None = None
    insecure_remote: bool = False
    link: LinkAccess = field(default=OPEN, repr=False)

    def check(self, host: str, follow: str | None = None) -> None:
        """UsageError if the broker must not listen on `host` like this, or cannot follow another."""
        self.link.check()
        if follow is not None and self.users and self.link.user is None:
            raise UsageError(
                "a follower with --users needs a login at its leader, and the leader at it: give --link-login"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--tls-cert and --tls-key go together: give both, or neither")
        parsed(self.users)
        if self.tls_key is not None:
            check_private(self.tls_key, "--tls-key")
            self.context()
        self.advertised(host, 1)
        if host in ("", "0.0.0.0", "::") and self.advertise is None:
            raise UsageError(
                f"nobody can connect to {host or 'no address'}: say with --advertise where clients find it"
            )
        if not is_loopback(host) and not self.insecure_remote and not (self.users and self.tls_cert):
            raise UsageError(
                f"--host {host} can be reached from other machines: give --users, --tls-cert and --tls-key, "
                "or say --insecure-remote"
            )

    def context(self) -> ssl.SSLContext | None:
        """TLS as a server, 1.2 or newer; None if there is none. UsageError if the files are no such pair."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        import ssl

        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.options |= ssl.OP_NO_RENEGOTIATION
        try:
            made.load_cert_chain(self.tls_cert, self.tls_key, password=lambda: b"")  # never ask at a terminal
        except OSError as error:
            raise UsageError(f"--tls-cert {self.tls_cert} and --tls-key {self.tls_key}: {error}") from error
        return made

    def advertised(self, host: str, port: int) -> tuple[str, int]:
        """Where clients are to connect to, of a broker that listens on `host:port`."""
        if self.advertise is None:
            return host, port
        name, colon, number = self.advertise.rpartition(":")
        if not colon or (self.advertise.count(":") > 1 and "]" not in self.advertise):
            return self.advertise, port  # a name alone, or an address of version 6 alone
        if not number.isdecimal() or not 0 < int(number) < 65536 or not name:
            raise UsageError(f"--advertise takes HOST or HOST:PORT, got {self.advertise!r}")
        return name.strip("[]"), int(number)

    def listeners(self, host: str, port: int) -> str:
        """The same as Kafka's advertised.listeners.

        >>> Access(users=("alice:secret",)).listeners("::1", 9092)
        'SASL_PLAINTEXT://[::1]:9092'
        """
        name, number = self.advertised(host, port)
        protocol = f"{'SASL_' if self.users else ''}{'SSL' if self.tls_cert else 'PLAINTEXT'}"
        return f"{protocol}://{f'[{name}]' if ':' in name else name}:{number}"


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def users_of(path: str | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The lines of the users' file, or without one those of the environment; UsageError as `check_private` has it."""
    if path is None:
        return tuple(environment.get(USERS, "").splitlines())
    check_private(path, "--users")
    with open_file(path, encoding="utf-8", errors="surrogateescape") as file:
        lines = tuple(file.read().splitlines())
    if not any(line.strip() and not line.startswith("#") for line in lines):
        raise UsageError(f"--users {path} names nobody: write name:password, one a line")
    return lines


def listener_for(
    loop: Any, address: tuple[str, int], settings: Settings, timer: Any, access: Access, now_ns: Callable[[], int]
) -> Listener:  # fmt: skip
    """The listener that `access` asks for, with TLS or without; UsageError if certificate and key are none."""
    connect: Connect = Connection
    context = access.context()
    if context is not None:
        connect = connector(context)
    listener = Listener(loop, address, settings, timer, connect, now_ns)
    if access.users:
        listener.largest_unknown = min(listener.largest_request, LARGEST_UNKNOWN)
    return listener

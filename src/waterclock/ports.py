"""Who listens on a port of this machine, for the message of whoever wanted it.

Rule 1: what is not known is not said: another user's process, one of another container, a system without /proc.
Rule 2: of a process its number and its first words are said, and no option of it: there may be a secret in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile

from waterclock.outside import open_file, os, socket

_LISTENS = "0A"
_ANY = ("", "0.0.0.0", "::")
_MOST_WORDS = 4


def holder(host: str, port: int) -> str:
    """The process that listens there, as "process 4711 (python waterclock broker)"; "" where that is not known."""
    wanted = set(_sockets(host, port))
    with suppress(OSError):
        for pid in filter(str.isdecimal, os.listdir("/proc") if wanted else ()):
            with suppress(OSError):  # of another user, or it has ended
                if any(_leads_to(f"/proc/{pid}/fd/{fd}") in wanted for fd in os.listdir(f"/proc/{pid}/fd")):
                    return f"process {pid} ({_words(pid)})"
    return ""


def _leads_to(link: str) -> str:
    with suppress(OSError):  # closed meanwhile, as the one that lists them is
        return os.readlink(link)
    return ""


def _sockets(host: str, port: int) -> Iterator[str]:
    """Those that are in the way of an address, as a process's folder in /proc names them."""
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        with suppress(OSError), open_file(table) as lines:
            for row in map(str.split, lines):
                address, _, number = row[1].partition(":")
                taken = row[3] == _LISTENS and int(number, 16) == port
                if taken and (host in _ANY or not int(address, 16) or address == _as_listed(host, family)):
                    yield f"socket:[{row[9]}]"


def _as_listed(host: str, family: socket.AddressFamily) -> str:
    """An address as the table writes it: words of four bytes, the last byte first."""
    try:
        packed = socket.inet_pton(family, host)
    except OSError:
        return ""
    return b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4)).hex().upper()


def _words(pid: str) -> str:
    with open_file(f"/proc/{pid}/cmdline") as file:
        words = file.read().split("\0")
    said = takewhile(lambda word: word and not word.startswith("-"), words)
    return " ".join([os.path.basename(word) for word in said][:_MOST_WORDS])

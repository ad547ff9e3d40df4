"""A PostgreSQL server in a folder of its own: made, killed and started again at will, gone at the end.

It is reached by a socket in its folder, so no port is taken. PostgreSQL does not run as root: then it runs as its own
user, or as nobody. `locked` is a role that needs a password, all others need none.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waterclock.errors import EnvironmentMissing

CONF = """
listen_addresses = ''
unix_socket_directories = '{folder}'
fsync = off
shared_buffers = 32MB
max_connections = 40
"""


class PostgresServer:
    """A server that runs; `crash` and `start` may be called in turns."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self._binaries = folder, binaries
        self._user = _unprivileged() if os.geteuid() == 0 else None

    def url(self, user: str = "postgres", database: str = "postgres") -> str:
        """Where it is reached."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def make(self) -> None:
        """Make its data, empty."""
        if self._user:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        with (self.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write(CONF.format(folder=self.folder))
        hba = self.folder / "data" / "pg_hba.conf"
        hba.write_text("local all locked scram-sha-256\n" + hba.read_text())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "start")

    def crash(self) -> None:
        """Stop at once: no checkpoint, no goodbye to clients. What was committed is recovered at the next start."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "-w", "stop")

    def is_running(self) -> bool:
        """True where it was started and not stopped."""
        return (self.folder / "data" / "postmaster.pid").exists()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        reported = self.folder / "told"
        with reported.open("w") as out:  # no pipe: the server would hold it open
            done = subprocess.run(
                command, cwd=self.folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False, user=self._user
            )
        if done.returncode != 0:
            raise EnvironmentMissing(f"PostgreSQL's {program} failed: {' '.join(reported.read_text().split())}")


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A new server, for as long as the block lasts; EnvironmentMissing where PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        raise EnvironmentMissing("PostgreSQL's server is not installed (Debian: apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="waterclock-pg-", dir="/tmp"))  # short: a socket's path has 107 characters
    server = PostgresServer(folder, binaries)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if server.is_running():
            server.crash()
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path | None:
    """Where `initdb` and `pg_ctl` are: Debian keeps them off the PATH, a folder for each version."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    return versions[-1].parent if versions else None


def _unprivileged() -> str:
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"

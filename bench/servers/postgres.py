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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from waterclock.errors import EnvironmentMissing

CONF = """
listen_addresses = ''
unix_socket_directories = '{folder}'
fsync = off
shared_buffers = 32MB
max_connections = 40
"""
NO_SETTINGS: Final = MappingProxyType[str, str]({})
OF_THE_ENDED: Final = slice(13, 15)  # of /proc/PID/stat behind the name: processor time of children that have ended


class PostgresServer:
    """A server that runs; `crash` and `start` may be called in turns."""

    def __init__(self, folder: Path, binaries: Path, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        self.folder = folder
        self._binaries = binaries
        self._settings = settings
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
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())  # the last one counts
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

    def cpu_s(self) -> float:
        """Seconds of processor of the server and all its processes, those that have ended too. Linux."""
        pid = (self.folder / "data" / "postmaster.pid").read_text().split()[0]
        ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[OF_THE_ENDED]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(map(int, ended)) / os.sysconf("SC_CLK_TCK") + sum(map(_cpu_s, [pid, *children]))

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        reported = self.folder / "told"
        with reported.open("w") as out:  # no pipe: the server would hold it open
            done = subprocess.run(
                command, cwd=self.folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False, user=self._user
            )
        if done.returncode != 0:
            raise EnvironmentMissing(f"PostgreSQL's {program} failed: {' '.join(reported.read_text().split())}")


def _cpu_s(pid: str) -> float:
    """Of one process that lives, to the nanosecond; 0 for one that has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return 0.0


@contextmanager
def running_server(settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[PostgresServer]:
    """A new server, for as long as the block lasts; EnvironmentMissing where PostgreSQL is not installed.

    It flushes nothing to the disk unless `settings`, PostgreSQL's own by name, say so.
    """
    binaries = _binaries()
    if binaries is None:
        raise EnvironmentMissing("PostgreSQL's server is not installed (Debian: apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="waterclock-pg-", dir="/tmp"))  # short: a socket's path has 107 characters
    server = PostgresServer(folder, binaries, settings)
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

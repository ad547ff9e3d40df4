"""Our broker in a process of its own, as the command `waterclock broker` starts it."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from waterclock.bench.servers.server import USERS, Process

MAIN = "import sys; from waterclock.cli import main; sys.exit(main())"


class OurBroker:
    """A server of the seam `waterclock.bench.servers.server.Server`."""

    def __init__(self, folder: Path, settings: Mapping[str, str], *, users: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._settings = settings
        self._users = users
        self._port = 0
        self._guarded: OurBroker | None = None
        self._launch()

    @property
    def guarded(self) -> str | None:
        """One broker of ours asks everybody or nobody for a password: a second one asks."""
        if self._guarded is None:
            self._guarded = OurBroker(self._folder / "guarded", self._settings, users=USERS)
        return self._guarded.bootstrap

    def _users_file(self) -> list[str]:
        if self._users is None:
            return []
        file = self._folder / "users"
        file.write_text("".join(f"{name}:{password}\n" for name, password in self._users.items()))
        file.chmod(0o600)
        return ["--users", str(file)]

    def _launch(self) -> None:
        sets = [word for key, value in self._settings.items() for word in ("--set", f"{key}={value}")]
        place = ["--port", str(self._port), "--data", str(self._folder / "data")]
        self._process = Process(
            [sys.executable, "-P", "-c", MAIN, "broker", *place, *sets, *self._users_file()],
            self._folder / "server.log",
            self._told_its_address,
        )

    def _told_its_address(self, written: str) -> bool:
        found = re.search(r"127\.0\.0\.1:(\d+).*\n", written)
        if found:
            self._port = int(found[1])
            self.bootstrap = f"127.0.0.1:{self._port}"
        return bool(found)

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self) -> None:
        self.stop()
        self._launch()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, sig: signal.Signals) -> None:
        self._process.end(sig)
        if self._guarded:
            self._guarded, guarded = None, self._guarded
            guarded._end(sig)

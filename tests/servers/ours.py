"""Our broker in a process of its own, as the command `waterclock broker` starts it."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers.server import Process

MAIN = "import sys; from waterclock.cli import main; sys.exit(main())"


class OurBroker:
    """A server of the seam `tests.servers.server.Server`."""

    guarded: str | None = None

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._settings, self._port = folder, settings, 0
        self._launch()

    def _launch(self) -> None:
        sets = [word for key, value in self._settings.items() for word in ("--set", f"{key}={value}")]
        place = ["--port", str(self._port), "--data", str(self._folder / "data")]
        self._process = Process(
            [sys.executable, "-c", MAIN, "broker", *place, *sets], self._folder / "server.log", self._told_its_address
        )

    def _told_its_address(self, written: str) -> bool:
        found = re.search(r"127\.0\.0\.1:(\d+).*\n", written)
        if found:
            self._port = int(found[1])
            self.bootstrap = f"127.0.0.1:{self._port}"
        return bool(found)

    def restart(self) -> None:
        self.stop()
        self._launch()

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)

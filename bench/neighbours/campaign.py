"""Each attack on a broker of its own: the well-behaved client alone, and then beside it.

Rule 1: broker, attackers and the well-behaved client are processes of their own.
Rule 2: the goal stands with the figures: p99 at most TIMES the quiet one, and never above MOST_MS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from waterclock.bench.neighbours import requests
from waterclock.bench.neighbours.attacks import ATTACKS, Attack
from waterclock.bench.neighbours.good import TOPIC
from waterclock.bench.servers.ours import OurBroker
from waterclock.bench.servers.server import USERS

RATE: Final = 50  # requests a second of the well-behaved client
TIMES: Final = 10
MOST_MS: Final = 250.0
SETTINGS: Final = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "0"}


def measure(seconds: float, tell: Callable[[str], None], names: Sequence[str] = tuple(ATTACKS)) -> dict[str, Any]:
    """Milliseconds by attack: quiet and beside it."""
    rows = {}
    for name in names:
        tell(f"neighbours: {ATTACKS[name].what}")
        rows[name] = {"what": ATTACKS[name].what, **_measured(name, ATTACKS[name], seconds)}
    return {"rate": RATE, "seconds": seconds, "load": os.getloadavg()[0], "rows": rows}


def _measured(name: str, attack: Attack, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        broker = OurBroker(Path(folder), SETTINGS, users=USERS if attack.users else None)
        try:
            with requests.connected(broker.bootstrap, login=attack.users) as sock:
                for topic in (TOPIC, "flood"):
                    requests.ask(sock, requests.create_topics([topic], 4))
            _attacking(broker.bootstrap, name, "prepare").communicate()
            quiet = _good(broker.bootstrap, seconds, attack)
            attacking = _attacking(broker.bootstrap, name, "attack")
            try:
                assert attacking.stdout is not None
                attacking.stdout.readline()
                return {"quiet": quiet, "beside": _good(broker.bootstrap, seconds, attack)}
            finally:
                attacking.kill()
                attacking.communicate()
        finally:
            broker.kill()


def _attacking(bootstrap: str, name: str, what: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-P", "-m", "waterclock.bench.neighbours.attacks", bootstrap, name, what]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _good(bootstrap: str, seconds: float, attack: Attack) -> dict[str, Any]:
    words = [sys.executable, "-P", "-m", "waterclock.bench.neighbours.good", bootstrap, str(seconds), str(RATE)]
    words += ["login"] if attack.users else []
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"requests": 0, "p50": None, "p99": None, "max": None}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(figures: dict[str, Any]) -> str:
    """A row an attack."""
    from waterclock.bench.tables import aligned

    head = ["beside", "quiet p50, ms", "quiet p99", "p50", "p99", "worst", "p99 to quiet", "answered"]
    rows = [_row(row, figures) for row in figures["rows"].values()]
    told = (
        f"A client with {figures['rate']} requests a second, acks=all and metadata in turn, {figures['seconds']:g} s each;"
        f" load {figures['load']:.1f} at the end.\nGoal: p99 at most {TIMES} x quiet, and {MOST_MS:.0f} ms"
    )
    return f"{told}\n\n{aligned(head, rows)}"


def _row(row: dict[str, Any], figures: dict[str, Any]) -> list[str]:
    quiet, beside = row["quiet"], row["beside"]
    numbers = [quiet["p50"], quiet["p99"], beside["p50"], beside["p99"], beside["max"]]
    ratio = f"{beside['p99'] / quiet['p99']:.1f} x" if beside["p99"] and quiet["p99"] else "-"
    share = f"{beside['requests'] / (figures['rate'] * figures['seconds']):.0%}"
    return [row["what"], *("-" if ms is None else f"{ms:.1f}" for ms in numbers), ratio, share]

"""Marks in the product's rare branches: how often each is passed, and what waits for it.

A mark is a call that is put before a statement as its module is imported (planting.py). The source has none of them, so
they cost nothing in production.

Rule 1: marks.toml names the module and the statement, which stands there once; a test sees that it does.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

_BY_MODULE = {
    f"waterclock.{module}": marks
    for module, marks in tomllib.loads((Path(__file__).parent / "marks.toml").read_text()).items()
}


def _of(*rooms: str) -> tuple[str, ...]:
    return tuple(module for module in _BY_MODULE if module.startswith(tuple(f"waterclock.{room}" for room in rooms)))


OF_A_PAIR, OF_RELAYS = _of("broker.replication", "broker.follower"), _of("relay.")
AIMED_AT = _of("broker.", "relay.")
"""Where faults wait for marks; those of captures and pipelines are counted alone."""
MARKS = {name: (module, line) for module, marks in _BY_MODULE.items() for name, line in marks.items()}
"""Each mark's module, and how the statement begins that it stands before."""
TOLD = "a client is told"
"""The one mark of the clients: an answer has come."""
_passed: Counter[str] = Counter()
_waiting: dict[str, list[Callable[[], None]]] = {}


def begin() -> Counter[str]:
    """Count for a new universe, in what is given back."""
    global _passed
    _waiting.clear()
    _passed = Counter()
    return _passed


def wait(name: str, deed: Callable[[], None]) -> None:
    """Call `deed` where the mark is passed next."""
    _waiting.setdefault(name, []).append(deed)


def passed(name: str) -> None:
    _passed[name] += 1
    if name in _waiting:
        for deed in _waiting.pop(name):
            deed()

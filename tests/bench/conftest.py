"""What the benchmarks do to the process that tests them."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def tests_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement thaws what it froze. Here that is all the tests there are, a second for each collection after it."""
    monkeypatch.setattr(gc, "unfreeze", lambda: None)


def quiet(what: str) -> None:
    """Where a measurement says how far it is: nobody listens."""

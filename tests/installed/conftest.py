"""`make test-wheel` alone runs what is here: it makes the source distributions, and names their folder in $WHEELS."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.installed.environments import Environment, home, kinds, made

collect_ignore_glob = [] if "WHEELS" in os.environ else ["test_*.py"]
_KINDS: Final = kinds() if "WHEELS" in os.environ else []


@pytest.fixture(scope="session", autouse=True)
def environments() -> Iterator[None]:
    """Gone at the end: some have a gigabyte."""
    yield
    shutil.rmtree(home())


def each(*wanted: bool) -> Any:
    return pytest.fixture(scope="session", params=[kind for kind in _KINDS if kind.whole in wanted], ids=str)


@each(True, False)
def environment(request: pytest.FixtureRequest) -> Environment:
    """Each environment."""
    return made(request.param)


@each(False)
def bare(request: pytest.FixtureRequest) -> Environment:
    """Each environment without an extra."""
    return made(request.param)


@each(True)
def whole(request: pytest.FixtureRequest) -> Environment:
    """Each environment with extras and demos."""
    return made(request.param)

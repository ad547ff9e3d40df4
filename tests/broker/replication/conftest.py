"""Two brokers in sync, with a topic `t`, unless a file has a pair of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.replication.pairs import Pair, pair


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as brokers:
        yield brokers

"""A store of the test's own, whose clock stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from waterclock.relay.store import PartitionStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    pytest.importorskip("numpy")
    from tests.relay.store.stores import US, Date
    from waterclock.relay.store import PartitionStore

    with PartitionStore(tmp_path, US, Date()) as store:
        yield store

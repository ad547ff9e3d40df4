"""What several files about sinks share: a sink that is at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sinks.stores import Store
    from waterclock.sinks import Sink


@pytest.fixture
def sink(store: Store) -> Iterator[Sink]:
    """The sink of `store`, with batch 0 in it; a file that wants it empty, or a mirror, has one of its own."""
    from tests.sinks.stores import SCHEMA, batch
    from waterclock.sinks import apply_once

    with closing(store.sink()) as made:
        made.open(SCHEMA)
        apply_once(made, batch(0))
        yield made

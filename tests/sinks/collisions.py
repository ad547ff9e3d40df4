"""Two writers of one table who come to the same batch at once."""

from __future__ import annotations

import re

import pytest

from tests.sinks.stores import batch
from waterclock.errors import SinkLost
from waterclock.sinks import Sink, apply_once


def collide(late: Sink, quick: Sink, number: int) -> None:
    """Both look for a batch, write it, and commit: of two writers who come to that at once the late one is refused."""
    for each in (late, quick):
        each.begin()
        assert each.is_applied("q", number) is False
        each.write(batch(number))
    quick.commit()
    with pytest.raises(SinkLost, match=re.escape(f"another writer was quicker at {late.describe()}")):
        late.commit()
    assert apply_once(late, batch(number)) is False

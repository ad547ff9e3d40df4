"""Members of both protocols on a broker whose time is turned by hand; a file may say what of it is otherwise there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import Reader
from tests.broker.groups.old_readers import OldReader
from waterclock.broker.wire.errors import Error


@pytest.fixture
def served() -> Iterator[Turned]:
    with Turned() as turned:
        yield turned


@pytest.fixture
def ann(served: Turned) -> Iterator[OldReader]:
    """A member of the classic protocol, alone in a stable group, with all four partitions."""
    one = OldReader(served, "ann")
    one.create_topic("t", 4)
    assert one.enters().error_code == Error.NONE
    yield one
    one.close()


@pytest.fixture
def bob(served: Turned) -> Iterator[Reader]:
    """A member of the new protocol, which has not joined yet."""
    one = Reader(served, "bob")
    yield one
    one.close()


@pytest.fixture
def cid(served: Turned) -> Iterator[OldReader]:
    """One more of the classic protocol, which has not joined yet."""
    one = OldReader(served, "cid")
    yield one
    one.close()

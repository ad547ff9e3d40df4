"""What tests of a broker in this process share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.broker.raw_client import RawClient
    from waterclock.broker import Broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    """One connection to the test's own broker."""
    from tests.broker.raw_client import RawClient  # needs kio, without which these tests are skipped

    with RawClient(broker.bootstrap) as client:
        yield client

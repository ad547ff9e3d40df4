"""What several files about sinks share: a sink that is at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SQL

if TYPE_CHECKING:
    from tests.sinks.far_servers import FarServer
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


@pytest.fixture(params=SQL[1:3])
def far(request: pytest.FixtureRequest) -> Iterator[FarServer]:
    """A server of a sink, PostgreSQL or MariaDB; started again if a test leaves it stopped."""
    from tests.sinks.far_servers import FarMySQL, FarPostgres

    made: FarServer = (
        FarMySQL(request.getfixturevalue("mariadb"))
        if request.param == "mysql"
        else FarPostgres(request.getfixturevalue("postgres"))
    )
    yield made
    if not made.server.is_running():
        made.server.start()

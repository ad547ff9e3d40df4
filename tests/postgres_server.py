"""The PostgreSQL server of bench/servers for tests, which are skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from waterclock.bench.servers import postgres
from waterclock.bench.servers.postgres import PostgresServer
from waterclock.errors import EnvironmentMissing

__all__ = ["PostgresServer", "running_server"]


@contextmanager
def running_server(settings: Mapping[str, str] = postgres.NO_SETTINGS) -> Iterator[PostgresServer]:
    """A new server with these settings of PostgreSQL's, for as long as the block lasts."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres.running_server(settings))
        except EnvironmentMissing as error:
            pytest.skip(str(error))
        yield server

"""`Requests`: the connection that the requests of each topic share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.kafka.codes import ELSEWHERE
from tests.simulation.kafka.connection import Connection, Gone
from tests.simulation.kafka.encoding import Answer

Place = tuple[str, int]  # a topic's partition


class Requests:
    """`where()` says to which address the next connection goes."""

    def __init__(self, process: Any, network: Any, where: Callable[[], tuple[str, int]]) -> None:
        self.process, self.network, self.where = process, network, where
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        if self._connection is None or self._connection.gone:
            try:
                self._connection = Connection(self.process, self.network, self.where())
            except OSError as error:
                raise Gone(str(error)) from None
        return self._connection

    async def call(self, key: int, version: int, body: bytes, timeout: float = 10.0, flexible: bool = False) -> Answer:
        return await self.connection().call(key, version, body, timeout, flexible)

    @property
    def fresh(self) -> bool:
        """Whether the next request goes by a new connection."""
        return self._connection is None or self._connection.gone

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def elsewhere(self, error: int) -> None:
        """This one does not lead: look for another."""
        if error in ELSEWHERE:
            self.close()

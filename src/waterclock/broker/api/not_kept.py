"""What a client hears whose change the store did not keep: which error, and a sentence about it.

too few brokers in sync    REQUEST_TIMED_OUT      as from Apache Kafka while too few controllers agree: its clients, Kafka
                                                  Streams among them, try again
the disk refused           KAFKA_STORAGE_ERROR
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.replication.leader import Leader

Refusal = tuple[Error, str]
BY_THE_DISK: Final = Error.KAFKA_STORAGE_ERROR, "The change could not be kept."
BY_TOO_FEW: Final = (
    Error.REQUEST_TIMED_OUT,
    "Nothing was changed: fewer brokers are in sync than min.insync.replicas asks for. Try again when the follower is back",
)


class NotKept:
    """Why the last change was not kept. Without a `leading` broker it was the disk."""

    def __init__(self, leading: Leader | None = None) -> None:
        self._leading = leading

    def why(self) -> Refusal:
        return BY_TOO_FEW if self._leading is not None and self._leading.refuses else BY_THE_DISK

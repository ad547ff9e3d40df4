"""What this broker does not have, and answers so: quotas, partitions on the move."""

from __future__ import annotations

from typing import Final

from waterclock.broker.api.table import Api
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

LIST_REASSIGNMENTS: Final = 46
DESCRIBE_QUOTAS: Final = 48


class AbsentApis:
    """The APIs whose answer is always the same."""

    def apis(self) -> dict[int, Api]:
        return {
            LIST_REASSIGNMENTS: Api(self.list_reassignments, 0, 0),
            DESCRIBE_QUOTAS: Api(self.describe_quotas, 0, 1),
        }

    def list_reassignments(self, request: Request) -> None:
        request.answer(error_code=Error.NONE, error_message=None, topics=())

    def describe_quotas(self, request: Request) -> None:
        request.answer(error_code=Error.NONE, error_message="", entries=())

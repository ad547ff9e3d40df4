"""What this broker does not have, and answers so: an authorizer with its ACLs, quotas, partitions on the move."""

from __future__ import annotations

from typing import Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
LIST_REASSIGNMENTS: Final = 46
DESCRIBE_QUOTAS: Final = 48
NO_AUTHORIZER: Final[dict[str, Any]] = {
    "error_code": Error.SECURITY_DISABLED,
    "error_message": "There is no authorizer: whoever may connect may do everything",
}


class AbsentApis:
    """The APIs whose answer is always the same."""

    def apis(self) -> dict[int, Api]:
        return {
            DESCRIBE_ACLS: Api(self.describe_acls, 1, 3),
            CREATE_ACLS: Api(self.create_acls, 1, 3),
            DELETE_ACLS: Api(self.delete_acls, 1, 3),
            LIST_REASSIGNMENTS: Api(self.list_reassignments, 0, 0),
            DESCRIBE_QUOTAS: Api(self.describe_quotas, 0, 1),
        }

    def describe_acls(self, request: Request) -> None:
        request.answer(**NO_AUTHORIZER, resources=())

    def create_acls(self, request: Request) -> None:
        row = request.make("AclCreationResult", **NO_AUTHORIZER)
        request.answer(results=(row,) * len(request.body.creations))

    def delete_acls(self, request: Request) -> None:
        row = request.make("DeleteAclsFilterResult", **NO_AUTHORIZER, matching_acls=())
        request.answer(filter_results=(row,) * len(request.body.filters))

    def list_reassignments(self, request: Request) -> None:
        request.answer(error_code=Error.NONE, error_message=None, topics=())

    def describe_quotas(self, request: Request) -> None:
        request.answer(error_code=Error.NONE, error_message="", entries=())

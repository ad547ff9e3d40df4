"""DescribeAcls, CreateAcls, DeleteAcls. Who may make these requests stands in `table.py`.

Rule 1: a change is answered once it is durable, and holds from then on.
Rule 2: each ACL that is to be made is checked for itself; one that stands there already is made again, without an error.
    Only ANY and MATCH refuse the whole request.
Rule 3: a number that the protocol never had (0) closes the connection; one that is not known here matches nothing.
Source: KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.api.waiting import NotKept
from waterclock.broker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from waterclock.broker.security.authorizer import Authorizer
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

DESCRIBE: Final = 29
CREATE: Final = 30
DELETE: Final = 31
NO_AUTHORIZER: Final[dict[str, Any]] = {
    "error_code": Error.SECURITY_DISABLED,
    "error_message": "There is no authorizer: whoever may connect may do everything",
}
FINE: Final[dict[str, Any]] = {"error_code": Error.NONE, "error_message": None}
FOR_FILTERS: Final[dict[str, Any]] = {
    "error_code": Error.UNKNOWN_SERVER_ERROR,  # Kafka's answer
    "error_message": "ANY and MATCH stand in filters only: none of these ACLs was made.",
}
ANY: Final = 1
OF_ACL: Final[tuple[tuple[str, type[IntEnum]], ...]] = (
    ("resource_type", ResourceType),
    ("pattern_type", PatternType),
    ("operation", Operation),
    ("permission", Permission),
)


class AclApis:
    """The APIs about ACLs; without an `authorizer` all of them answer SECURITY_DISABLED."""

    def __init__(self, authorizer: Authorizer | None, not_kept: NotKept) -> None:
        self._authorizer, self._not_kept = authorizer, not_kept

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE: Api(self.describe, 1, 3), CREATE: Api(self.create, 1, 3), DELETE: Api(self.delete, 1, 3)}

    # DescribeAcls

    def describe(self, request: Request) -> None:
        if self._authorizer is None:
            request.answer(**NO_AUTHORIZER, resources=())
            return
        wanted = _filter(request.body)
        found: dict[tuple[int, str, int], list[Acl]] = {}
        for acl in sorted(filter(wanted.matches, self._authorizer.acls)):
            found.setdefault(acl[:3], []).append(acl)
        rows = tuple(_resource(request, *pattern, acls) for pattern, acls in found.items())
        request.answer(**FINE, resources=rows)

    # CreateAcls

    def create(self, request: Request) -> None:
        creations = request.body.creations
        if self._authorizer is None:
            request.answer(results=(request.make("AclCreationResult", **NO_AUTHORIZER),) * len(creations))
            return
        acls = [_acl(one) for one in creations]
        if any(
            ANY in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
            or acl.pattern_type == PatternType.MATCH
            for acl in acls
        ):
            request.answer(results=(request.make("AclCreationResult", **FOR_FILTERS),) * len(creations))
            return
        problems = [_problem(acl) for acl in acls]
        good = [acl for acl, problem in zip(acls, problems, strict=True) if problem is None]

        def kept(done: bool) -> None:
            made = self._outcome(done)
            answers = (
                made if wrong is None else {"error_code": Error.INVALID_REQUEST, "error_message": wrong}
                for wrong in problems
            )
            request.answer(results=tuple(request.make("AclCreationResult", **one) for one in answers))

        self._change(self._authorizer.create, good, kept)

    def _outcome(self, done: bool) -> dict[str, Any]:
        error, message = (Error.NONE, None) if done else self._not_kept.why()
        return {"error_code": error, "error_message": message}

    # DeleteAcls

    def delete(self, request: Request) -> None:
        filters = request.body.filters
        if self._authorizer is None:
            row = request.make("DeleteAclsFilterResult", **NO_AUTHORIZER, matching_acls=())
            request.answer(filter_results=(row,) * len(filters))
            return
        held = self._authorizer.acls
        found = [  # None: a filter with a number that nobody knows
            sorted(filter(wanted.matches, held)) if _known(wanted) else None for wanted in map(_filter, filters)
        ]

        def kept(done: bool) -> None:
            said = self._outcome(done)
            request.answer(filter_results=tuple(_deleted(request, said, acls) for acls in found))

        self._change(self._authorizer.delete, [acl for acls in found for acl in acls or ()], kept)

    @staticmethod
    def _change(change: Callable[[list[Acl], Any], None], acls: list[Acl], then: Callable[[bool], None]) -> None:
        if acls:
            change(acls, then)
        else:
            then(True)


def _known(row: Any) -> bool:
    """Whether every number of a filter has a name."""
    return all(getattr(row, field) in set(kind) for field, kind in OF_ACL)


def _checked(*numbers: int) -> None:
    if 0 in numbers:
        raise ValueError("an ACL with a type, an operation or a permission 0")


def _acl(row: Any) -> Acl:
    acl = Acl(
        row.resource_type, row.resource_name, row.resource_pattern_type, row.principal, row.host, row.operation,
        row.permission_type,
    )  # fmt: skip
    _checked(acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
    return acl


def _filter(row: Any) -> AclFilter:
    wanted = AclFilter(
        row.resource_type_filter, row.resource_name_filter, row.pattern_type_filter, row.principal_filter,
        row.host_filter, row.operation, row.permission_type,
    )  # fmt: skip
    _checked(wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    return wanted


def _problem(acl: Acl) -> str | None:
    """Why there cannot be such an ACL."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "An ACL needs the name of a resource"
    for field, kind in OF_ACL:
        if getattr(acl, field) not in set(kind):
            return f"An ACL cannot have the {field.replace('_', ' ')} {getattr(acl, field)}"
    if ":" not in acl.principal:
        return f"A principal is a type and a name, such as User:alice; got {acl.principal!r}"
    return None


def _resource(request: Request, resource_type: int, name: str, pattern_type: int, acls: list[Acl]) -> Any:
    rows = tuple(
        request.make(
            "AclDescription", principal=acl.principal, host=acl.host, operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    )  # fmt: skip
    return request.make(
        "DescribeAclsResource", resource_type=resource_type, resource_name=name, pattern_type=pattern_type, acls=rows
    )


def _deleted(request: Request, said: dict[str, Any], acls: list[Acl] | None) -> Any:
    if acls is None:
        said, acls = {"error_code": Error.INVALID_REQUEST, "error_message": "The filter has a number unknown here."}, []
    rows = tuple(
        request.make(
            "DeleteAclsMatchingAcl", **said, resource_type=acl.resource_type, resource_name=acl.name,
            pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host, operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    )  # fmt: skip
    return request.make("DeleteAclsFilterResult", **said, matching_acls=rows)

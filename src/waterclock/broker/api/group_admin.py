"""Groups looked at and deleted, of either protocol."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from waterclock.broker.api.countdown import Countdown
from waterclock.broker.api.demands import may_with_cluster, may_with_group, operations
from waterclock.broker.api.metadata import NOBODY_ASKED
from waterclock.broker.api.table import Api
from waterclock.broker.groups.classic import ClassicGroup, ClassicState
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.wire import portions
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.groups.coordinator import GroupCoordinator

DESCRIBE, LIST, DELETE = 15, 16, 42


def authorized(request: Request, group_id: str) -> int:
    """What a client may do to a group, if it asks for that."""
    if not getattr(request.body, "include_authorized_operations", False):
        return NOBODY_ASKED
    return operations(request, ResourceType.GROUP, group_id)


class GroupAdminApis:
    """DescribeGroups, ListGroups and DeleteGroups."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE: Api(self.describe, 0, 6), LIST: Api(self.list, 0, 5), DELETE: Api(self.delete, 0, 2)}

    # DescribeGroups

    def describe(self, request: Request) -> None:
        names = request.body.groups
        portions.answer(request, "groups", (self._described(request, name) for name in names), len(names))

    def _described(self, request: Request, group_id: str) -> Any:
        row = {
            "group_id": group_id, "group_state": "", "protocol_type": "", "protocol_data": "", "members": (),
            "error_code": Error.NONE, "error_message": None, "authorized_operations": NOBODY_ASKED,
        }  # fmt: skip
        if not may_with_group(request, Operation.DESCRIBE, group_id):
            return request.make("DescribedGroup", **row | {"error_code": Error.GROUP_AUTHORIZATION_FAILED})
        row["authorized_operations"] = authorized(request, group_id)
        group = self._coordinator.get(group_id)
        if not isinstance(group, ClassicGroup):
            why = "not found." if group is None else "is not a classic group."
            row |= {"group_state": ClassicState.DEAD.value, "error_message": f"Group {group_id} {why}"}
            row["error_code"] = Error.GROUP_ID_NOT_FOUND if request.version >= 6 else Error.NONE
            return request.make("DescribedGroup", **row)
        row |= {"group_state": group.state_name, "protocol_type": group.protocol_type or ""}
        if group.state is ClassicState.STABLE:
            row["protocol_data"] = group.protocol or ""
        row["members"] = tuple(self._member(request, group, member_id) for member_id in group.members)
        return request.make("DescribedGroup", **row)

    def _member(self, request: Request, group: ClassicGroup, member_id: str) -> Any:
        member, stable = group.members[member_id], group.state is ClassicState.STABLE
        return request.make(
            "DescribedGroupMember", member_id=member_id, group_instance_id=member.instance,
            client_id=member.client_id, client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if stable else b"", member_assignment=member.assignment,
        )  # fmt: skip

    # ListGroups

    def list(self, request: Request) -> None:
        states = {state.strip().lower() for state in getattr(request.body, "states_filter", ())}
        kinds = {kind.strip().lower() for kind in getattr(request.body, "types_filter", ())}
        sees_all = may_with_cluster(request, Operation.DESCRIBE)
        names = self._coordinator.names()
        rows = (
            request.make(
                "ListedGroup", group_id=group.id, protocol_type=group.protocol_type or "",
                group_state=group.state_name, group_type=group.kind,
            )
            if group is not None
            and (not states or group.state_name.lower() in states)
            and (not kinds or group.kind.lower() in kinds)
            and (sees_all or may_with_group(request, Operation.DESCRIBE, group.id))
            else None
            for group in map(self._coordinator.get, names)
        )  # fmt: skip
        portions.answer(request, "groups", rows, len(names), error_code=Error.NONE)

    # DeleteGroups

    def delete(self, request: Request) -> None:
        """The answer goes out when the last of them is gone for good."""
        portions.do(request, self._delete_all(request), len(request.body.groups_names))

    def _delete_all(self, request: Request) -> Iterator[None]:
        names = request.body.groups_names
        errors = [Error.NONE] * len(names)

        def answer() -> None:
            pairs = zip(names, errors, strict=True)
            rows = (request.make("DeletableGroupResult", group_id=name, error_code=error) for name, error in pairs)
            portions.answer(request, "results", rows, len(errors))

        several = Countdown(len(names), answer)
        for row_number, group_id in enumerate(names):
            refused = partial(errors.__setitem__, row_number, Error.COORDINATOR_NOT_AVAILABLE)
            if not may_with_group(request, Operation.DELETE, group_id):
                errors[row_number] = Error.GROUP_AUTHORIZATION_FAILED
            else:
                errors[row_number] = self._coordinator.delete(group_id, several.after(refused))
            if errors[row_number]:
                several.settled()
            yield

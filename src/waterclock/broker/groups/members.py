"""A member of a group under the classic protocol, and what it is answered.

Rule 1: a member waits for at most one answer of each sort: `joining` for the next generation, `syncing` for its share of
    it. Who asks anew takes the place of the older request, which is answered that it must join again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from waterclock.broker.wire.errors import Error

CONSUMER: Final = "consumer"  # the protocol type whose metadata is known here
NOBODY: Final = ""  # the member id of who has none yet


class MemberIdentity(NamedTuple):
    """How a member of the classic protocol names itself; a static one may leave by its instance alone."""

    member: str
    instance: str | None


class JoinAnswer(NamedTuple):
    """The answer to JoinGroup. `members` is for the leader: id, instance and metadata of each."""

    error: Error
    member: str = NOBODY
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NOBODY
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncAnswer(NamedTuple):
    """The answer to SyncGroup."""

    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


Join: TypeAlias = "Callable[[JoinAnswer], Any]"
Sync: TypeAlias = "Callable[[SyncAnswer], Any]"


@dataclass(frozen=True)
class JoinRequest:
    """What a member says of itself when it joins. `protocols` are (name, metadata), the dearest first."""

    group: str
    member: str
    instance: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class ClassicMember:
    """One member. `fresh`: it has not seen a generation yet, and cannot send heartbeats."""

    __slots__ = (
        "assignment", "client_host", "client_id", "fresh", "id", "instance", "joining", "protocols", "rebalance_ms",
        "session_ms", "syncing",
    )  # fmt: skip

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.id, self.instance = member_id, request.instance
        self.client_id, self.client_host = request.client_id, request.client_host
        self.assignment = b""
        self.joining: Join | None = None
        self.syncing: Sync | None = None
        self.fresh = False
        self.describe(request)

    def describe(self, request: JoinRequest) -> None:
        """It joins anew, with these timeouts and protocols."""
        self.session_ms = request.session_ms
        self.rebalance_ms = request.rebalance_ms
        self.protocols = request.protocols

    def said(self) -> JoinRequest:
        """What it said of itself when it joined last."""
        return JoinRequest(
            "", self.id, self.instance, self.client_id, self.client_host, self.session_ms, self.rebalance_ms, "",
            self.protocols,
        )  # fmt: skip

    @property
    def keeps_alive(self) -> bool:
        """Whether it is known to be there without a heartbeat: it waits for an answer of ours."""
        return not self.fresh and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it says under a protocol; nothing under one that it does not speak."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that it likes best of those that everybody speaks."""
        return next(name for name, _ in self.protocols if name in candidates)

    def kept(self, assignment: bytes) -> dict[str, Any]:
        """What survives a restart, with this assignment."""
        return {
            "id": self.id, "instance": self.instance, "client": self.client_id, "host": self.client_host,
            "session": self.session_ms, "rebalance": self.rebalance_ms, "assignment": _text(assignment),
            "protocols": [[name, _text(data)] for name, data in self.protocols],
        }  # fmt: skip

    @classmethod
    def of(cls, kept: dict[str, Any]) -> ClassicMember:
        """The member that was kept."""
        protocols = tuple((name, base64.b64decode(data)) for name, data in kept["protocols"])
        said = JoinRequest(
            "", kept["id"], kept["instance"], kept["client"], kept["host"], kept["session"], kept["rebalance"],
            "", protocols,
        )  # fmt: skip
        member = cls(kept["id"], said)
        member.assignment = base64.b64decode(kept["assignment"])
        return member


def check_member(members: Container[str], static: Mapping[str, str], member_id: str, instance: str | None) -> Error:
    """Whether this is one of a group's `members`, and the one that `static` has for that instance."""
    if instance is not None:
        holder = static.get(instance)
        if holder is None:
            return Error.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return Error.FENCED_INSTANCE_ID
    return Error.NONE if member_id in members else Error.UNKNOWN_MEMBER_ID


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()

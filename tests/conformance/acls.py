"""Sentences about ACLs, said by a super user: made, found, taken away, and waited for until the broker goes by them.

ALICE is the one whose rights are tried; BOB is the super user of every broker that these tests start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.conformance.waiting import until
from tests.conformance.wire import Wire
from waterclock.bench.servers.server import USERS, Server

ALICE, BOB = "User:alice", "User:bob"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"{BOB};User:ANONYMOUS",  # Apache Kafka's own listener has no names
}
CLUSTER = "kafka-cluster"
PATIENCE_S = 5.0
ANY, MATCH = 1, 2
TYPES = {"topic": 2, "group": 3, "cluster": 4, "transactional id": 5, "token": 6, "user": 7}
LITERAL, PREFIXED = 3, 4
OPERATIONS = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster action": 9,
    "describe configs": 10, "alter configs": 11, "idempotent write": 12,
}  # fmt: skip
DENY, ALLOW = 2, 3


class Acl(NamedTuple):
    """An ACL as kio names its fields; `type` and `operation` are numbers."""

    type: int
    name: str
    operation: int
    principal: str = ALICE
    permission: int = ALLOW
    pattern: int = LITERAL
    host: str = "*"

    def creation(self) -> dict[str, Any]:
        return {
            "resource_type": self.type, "resource_name": self.name, "resource_pattern_type": self.pattern,
            "principal": self.principal, "host": self.host, "operation": self.operation,
            "permission_type": self.permission,
        }  # fmt: skip

    def wanted(self) -> dict[str, Any]:
        """The filter that finds this one alone."""
        return filter_of(self.type, self.name, self.pattern, self.principal, self.host, self.operation, self.permission)


def acl(operation: str, kind: str, name: str, **fields: Any) -> Acl:
    """`acl("read", "topic", "t", permission=DENY)`: by their names."""
    return Acl(TYPES[kind], name, OPERATIONS[operation], **fields)


def filter_of(
    kind: int = ANY, name: str | None = None, pattern: int = ANY, principal: str | None = None,
    host: str | None = None, operation: int = ANY, permission: int = ANY,
) -> dict[str, Any]:  # fmt: skip
    """A filter's fields; without arguments it finds everything."""
    return {
        "resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern,
        "principal_filter": principal, "host_filter": host, "operation": operation, "permission_type": permission,
    }  # fmt: skip


def logged_in(server: Server, principal: str) -> Wire:
    """A connection of one of the users, to be closed."""
    assert server.guarded is not None
    wire, name = Wire(server.guarded), principal.removeprefix("User:")
    assert wire.ask("sasl_handshake", 1, mechanism="PLAIN").error_code == 0
    token = f"\0{name}\0{USERS[name]}".encode()
    assert wire.ask("sasl_authenticate", 2, auth_bytes=token).error_code == 0
    return wire


class Granting:
    """The super user at work. `made`: what has to go in the end."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.made = wire, list[Acl]()

    def create(self, *acls: Acl) -> list[str]:
        """Make these; each one's error. Returns once the broker goes by them."""
        results = self.wire.ask("create_acls", 3, creations=[one.creation() for one in acls]).results
        good = [one for one, row in zip(acls, results, strict=True) if row.error_code == 0]
        self.made += good
        until(lambda: all(self.find(**one.wanted()) for one in good))
        return [row.error_code.name for row in results]

    def find(self, **wanted: Any) -> list[Acl]:
        """What a filter finds, in order."""
        answer = self.wire.ask("describe_acls", 3, **wanted)
        assert answer.error_code == 0, answer
        rows = ((one, row) for one in answer.resources for row in one.acls)
        return sorted(
            Acl(
                one.resource_type, one.resource_name, row.operation, row.principal, row.permission_type,
                one.pattern_type, row.host,
            )
            for one, row in rows
        )  # fmt: skip

    def delete(self, *wanted: dict[str, Any]) -> list[Any]:
        """Take away what these filters find; returns once the broker goes by that."""
        rows: list[Any] = list(self.wire.ask("delete_acls", 3, filters=list(wanted)).filter_results)
        until(lambda: not any(self.find(**one) for one, row in zip(wanted, rows, strict=True) if not row.error_code))
        return rows

    def clear(self) -> None:
        """Take away what was made here."""
        if self.made:
            self.delete(*(one.wanted() for one in dict.fromkeys(self.made)))
            self.made.clear()


def settled(ask: Callable[[], Any], wanted: Any) -> Any:
    """What is answered at last: Apache Kafka's controller hears of an ACL a moment after its broker."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (answer := ask()) != wanted and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return answer

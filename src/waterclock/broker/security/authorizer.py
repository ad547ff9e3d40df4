"""The authorizer: whether a client may do something, by the ACLs. The semantics are Kafka's StandardAuthorizer's.

For an operation on a resource, in this order:

    a super user                                      may
    an ACL that forbids it                            may not, whatever else there is
    an ACL that grants it, or what implies it         may
    ACLs about the resource, none of which says so    may not
    no ACL about the resource, of anybody             `allow.everyone.if.no.acl.found`

Rule 1: what implies an operation counts in ACLs that grant; one that forbids READ does not forbid DESCRIBE.
Rule 2: a decision is remembered for all connections of one principal from one address until an ACL changes: what a
    client does again costs a look-up.
Rule 3: a change holds from the moment on at which it is durable.
Rule 4: a refusal is logged at level DEBUG of waterclock.broker.authorizer, when it is decided; a remembered one is not
    logged again.
Rule 5: an ACL that cannot be read is an error: one that forbids must not be lost in silence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from waterclock.broker.security.acls import (
    EVERY,
    EVERYBODY,
    Acl,
    AclIndex,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    same_host,
)
from waterclock.broker.store import Entry, Store, Then
from waterclock.errors import UsageError

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings

NAMESPACE: Final = "acl"
ANONYMOUS: Final = "ANONYMOUS"  # whoever did not say who it is
MOST_REMEMBERED: Final = 10_000  # decisions about one principal from one address: names come from clients
IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
GRANTED_BY: Final = {one: frozenset((one, Operation.ALL, *IMPLIED_BY.get(one, ()))) for one in Operation}
FORBIDDEN_BY: Final = {one: frozenset((one, Operation.ALL)) for one in Operation}
# the operations that a resource knows
OPERATIONS: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
                         Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
                         Operation.ALTER_CONFIGS),
    ResourceType.CLUSTER: (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
                           Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
}  # fmt: skip
EVERYTHING: Final = {kind: sum(1 << one for one in known) for kind, known in OPERATIONS.items()}  # one bit for each
log = logging.getLogger("waterclock.broker.authorizer")


class Caller(Protocol):
    """Somebody who may have said who it is."""

    @property
    def principal(self) -> str | None: ...


class ConnectedCaller(Caller, Protocol):
    """The connection of whoever asks. `rights`: what was found out about it, for the authorizer to keep."""

    rights: Any

    def peer(self) -> str: ...


class Authorizer:
    """Decides by the ACLs of `store`. `super_users` are principals; `otherwise` holds if there is no ACL."""

    def __init__(self, store: Store, super_users: Iterable[str] = (), *, otherwise: bool = False) -> None:
        self._store = store
        self._super_users = frozenset(super_users)
        self._otherwise = otherwise
        self.era = 0
        """How often the ACLs have changed: what was decided in an earlier one does not hold."""
        self.acls = AclIndex()
        self._rights: WeakValueDictionary[tuple[str, str], Rights] = WeakValueDictionary()
        self._kept: Any = None
        self.reload()

    @classmethod
    def of(cls, settings: Settings, store: Store) -> Authorizer | None:
        """The one that the settings ask for; None: everybody may do everything."""
        if not settings["authorizer.class.name"]:
            return None
        super_users, otherwise = settings["super.users"], settings["allow.everyone.if.no.acl.found"]
        made = cls(store, super_users, otherwise=otherwise)
        if not (len(made.acls) or super_users or otherwise):
            log.warning("nobody may do anything: there is no ACL, and nobody who could make one. Set super.users")
        return made

    def reload(self) -> None:
        """Take what the store holds now."""
        kept = self._store.load(NAMESPACE)
        if kept != self._kept:
            self._kept, self.era = kept, self.era + 1
            self.acls.replace(map(_read, kept))

    # Changes

    def create(self, acls: Iterable[Acl], then: Then) -> None:
        """Have these too, once they are durable; then `then(True)`. One that is there already is left as it is."""
        self._change(dict.fromkeys(acls), True, then)

    def delete(self, acls: Iterable[Acl], then: Then) -> None:
        """Have these no more, once that is durable."""
        self._change(dict.fromkeys(acls), False, then)

    def _change(self, acls: dict[Acl, None], wanted: bool, then: Then) -> None:
        def kept(done: bool) -> None:
            if done:
                self.era += 1
                for acl in acls:
                    (self.acls.add if wanted else self.acls.discard)(acl)
            then(done)

        value: Any = {} if wanted else None  # the key says it all
        self._store.commit([Entry(NAMESPACE, acl.key(), value) for acl in acls], kept)

    # Decisions

    def rights(self, asker: ConnectedCaller) -> Rights:
        """What a connection may do."""
        rights: Rights | None = asker.rights
        if rights is None:
            who = principal_of(asker), same_host(asker.peer().rpartition(":")[0])
            rights = asker.rights = self._rights.get(who) or Rights(self, *who)
            self._rights[who] = rights
        return rights

    def sees(self, principal: str, host: str, topic: str) -> bool:
        """Whether `principal` may describe a topic."""
        return self.allows(principal, same_host(host), Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether `principal` may do that to the resource `name`, from `host` as `same_host` writes it."""
        if principal in self._super_users:
            return True
        found = granted = False
        for acl in self.acls.about(kind, name):
            found = True
            if not _concerns(acl, principal, host):
                continue
            if acl.permission == Permission.DENY:
                if acl.operation in FORBIDDEN_BY[operation]:
                    return False
            elif acl.operation in GRANTED_BY[operation]:
                granted = True
        return granted or (self._otherwise and not found)

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource to which `principal` may do that. KIP-679."""
        if self.allows(principal, host, operation, kind, "hardcode"):  # any name: a super user, or no ACL at all
            return True
        granted, forbidden = [], set()
        for acl in self.acls:
            if acl.resource_type != kind or acl.operation not in FORBIDDEN_BY[operation]:
                continue
            if _concerns(acl, principal, host):
                if acl.permission == Permission.DENY:
                    forbidden.add((acl.pattern_type, acl.name))
                else:
                    granted.append(acl)
        if (PatternType.LITERAL, EVERY) in forbidden:
            return False
        return any(not _dominated(acl, forbidden) for acl in granted)


def _read(key: str) -> Acl:
    try:
        return Acl.of(key)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the store has an ACL that cannot be read ({error}): {key!r}. Was it of a newer version?"
        ) from error


def principal_of(asker: Caller) -> str:
    """Who asks, as ACLs have it.

    >>> from types import SimpleNamespace
    >>> principal_of(SimpleNamespace(principal=None))
    'User:ANONYMOUS'
    """
    return f"User:{asker.principal or ANONYMOUS}"


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and (acl.host == EVERY or same_host(acl.host) == host)


def _dominated(acl: Acl, forbidden: set[tuple[int, str]]) -> bool:
    """Whether all that an ACL grants is forbidden."""
    if acl.pattern_type == PatternType.LITERAL:
        if acl.name == EVERY:
            return False
        if (PatternType.LITERAL, acl.name) in forbidden:
            return True
    return any((PatternType.PREFIXED, acl.name[:length]) in forbidden for length in range(1, len(acl.name) + 1))


class Rights:
    """What a principal may do from one address: the authorizer's decisions, remembered."""

    __slots__ = ("__weakref__", "_authorizer", "_era", "_host", "_known", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self._host = host
        self._era = -1
        self._known: dict[tuple[int, int, str | None], bool] = {}

    def may(self, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        """Whether it may do that to the resource `name`; None: to any."""
        if self._era == self._authorizer.era:
            known = self._known.get((operation, kind, name))
            if known is not None:
                return known
        return self._decide(operation, kind, name)

    def operations(self, kind: ResourceType, name: str) -> int:
        """All that it may do to a resource, one bit for each operation."""
        allows, who = self._authorizer.allows, (self.principal, self._host)
        return sum(1 << one for one in OPERATIONS[kind] if allows(*who, one, kind, name))

    def _decide(self, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        if self._era != self._authorizer.era or len(self._known) >= MOST_REMEMBERED:
            self._era, self._known = self._authorizer.era, {}
        who = self.principal, self._host
        if name is None:
            decided = self._authorizer.allows_any(*who, operation, kind)
        else:
            decided = self._authorizer.allows(*who, operation, kind, name)
        self._known[operation, kind, name] = decided
        if not decided:
            log.debug("%r from %s may not %s %s %r", *who, operation.name, kind.name, EVERY if name is None else name)
        return decided

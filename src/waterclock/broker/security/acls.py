"""ACLs as data: who may do what to which resources, filters and an index that find them. The numbers are the protocol's.

    pattern     is about
    LITERAL     the resource of that name; with the name *, every resource of the type
    PREFIXED    the resources whose names begin so

Rule 1: an ACL is all of its fields: two with the same are one.
Rule 2: a principal is TYPE:NAME; `User:*` is everybody, and so is the host *.
Rule 3: in the index a question costs one look-up for the name, one for *, and one for each length that a prefix has.
Source: KIP-11, KIP-290 (patterns), KIP-372 (filters), KIP-373 (users), KIP-939 (two-phase commit).
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

EVERY: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of type CLUSTER


class ResourceType(IntEnum):
    """What may be done something to; ANY stands in filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL's name is meant; ANY and MATCH stand in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What may be done; ANY stands in filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL grants or forbids; ANY stands in filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL. In the store it is its own key, as JSON."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def key(self) -> str:
        """Its fields as JSON.

        >>> Acl.of(Acl(2, "t", 3, "User:a", "*", 3, 3).key()).name
        't'
        """
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def of(cls, key: str) -> Acl:
        return cls(*json.loads(key))

    def covers(self, name: str) -> bool:
        """Whether it is about the resource `name` of its type.

        >>> Acl(2, "pay", 4, "User:a", "*", 3, 3).covers("payments")
        True
        """
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERY)


class AclFilter(NamedTuple):
    """What is looked for; None or ANY in a field: whatever stands there. MATCH: every ACL that is about `name`."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        wanted = (
            (self.resource_type, acl.resource_type),
            (self.operation, acl.operation),
            (self.permission, acl.permission),
        )
        if any(one not in (_ANY, has) for one, has in wanted):
            return False
        if any(one not in (None, has) for one, has in ((self.principal, acl.principal), (self.host, acl.host))):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        return acl.covers(self.name) if self.pattern_type == PatternType.MATCH else acl.name == self.name


_ANY: Final = 1


@lru_cache(maxsize=10_000)
def same_host(host: str) -> str:
    """The one way to write an address: an ACL's host, and where a client is.

    >>> same_host("0:0:0:0:0:0:0:1"), same_host("::ffff:10.0.0.1"), same_host("*")
    ('::1', '10.0.0.1', '*')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class AclIndex:
    """A set of ACLs.

    >>> index = AclIndex()
    >>> index.add(Acl(2, "pay", PatternType.PREFIXED, "User:a", "*", 3, 3))
    >>> [acl.name for acl in index.about(2, "payments")]
    ['pay']
    """

    def __init__(self) -> None:
        self._acls: dict[Acl, None] = {}  # in the order of their coming
        self._about: dict[tuple[int, int, str], dict[Acl, None]] = {}
        self._lengths: dict[int, Counter[int]] = {}  # of prefixes, by resource type

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    def __len__(self) -> int:
        return len(self._acls)

    def replace(self, acls: Iterable[Acl]) -> None:
        """Hold these and no others."""
        self._acls = {}
        self._about = {}
        self._lengths = {}
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        if acl in self._acls:
            return
        self._acls[acl] = None
        self._about.setdefault(_pattern(acl), {})[acl] = None
        if acl.pattern_type == PatternType.PREFIXED:
            self._lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1

    def discard(self, acl: Acl) -> None:
        if acl not in self._acls:
            return
        del self._acls[acl]
        rest = self._about[_pattern(acl)]
        del rest[acl]
        if not rest:
            del self._about[_pattern(acl)]
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def about(self, resource_type: int, name: str) -> Iterator[Acl]:
        """The ACLs about a resource, of anybody."""
        yield from self._about.get((resource_type, PatternType.LITERAL, name), ())
        if name != EVERY:
            yield from self._about.get((resource_type, PatternType.LITERAL, EVERY), ())
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._about.get((resource_type, PatternType.PREFIXED, name[:length]), ())


def _pattern(acl: Acl) -> tuple[int, int, str]:
    return acl.resource_type, acl.pattern_type, acl.name

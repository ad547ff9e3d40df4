"""The ACLs at hand: found by the resource that they are about.

Rule 1: a question costs one look-up for the name, one for *, and one for each length that a prefix has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from waterclock.broker.security.acls import EVERY, Acl, PatternType


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

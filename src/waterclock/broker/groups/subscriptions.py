"""What a consumer group subscribes to, by name and by pattern, against the topics that there are.

Patterns are RE2's, as with Apache Kafka. Python's own may try for ever over one short name, and everybody would wait for
the loop meanwhile. RE2 takes as long as the pattern is, times the name.

Rule 1: names and patterns are counted, so that a heartbeat costs as much as there are topics, not members.
Rule 2: a pattern must match the whole name.
Rule 3: a pattern finds the topics that its member may see; it is looked at anew when that changes.
Rule 4: RE2 is imported with the first pattern: most brokers never see one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from waterclock.broker.groups.assignment import ConsumerMember

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics

LONGEST: Final = 32_767  # characters; a string of Kafka's protocol was never longer before its flexible versions
MOST_BYTES: Final = 512 << 10  # for one pattern when it is compiled; RE2's module keeps the last 128


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a name matches `pattern`. ValueError if RE2 refuses it, with RE2's reason.

    >>> matches = matcher("orders-.*")
    >>> matches("orders-1"), matches("my-orders-1")
    (True, False)
    """
    import re2

    if len(pattern) > LONGEST:
        raise ValueError(f"{len(pattern)} characters, and {LONGEST} are allowed")
    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        why = error.args[0] if error.args else ""
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
    return lambda name: compiled.fullmatch(name) is not None


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.never_capture = True
    options.log_errors = False
    return options


class Pattern(NamedTuple):
    """A pattern, and whose it is: two members with the same one may see different topics."""

    text: str
    principal: str
    host: str

    @classmethod
    def of(cls, member: ConsumerMember) -> Pattern:
        return cls(member.regex, member.principal, member.client_host.removeprefix("/"))


class SeenTopic(NamedTuple):
    """A topic as the group last saw it: with other partitions, or made anew, it must be divided again."""

    id: UUID
    partitions: int


class Subscriptions:
    """The subscriptions of one group's members."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._patterns: Counter[Pattern] = Counter()
        self._known: frozenset[str] = frozenset()  # topics when the patterns were last looked at
        self._era = 0  # and the era of who sees what
        self._matches: dict[Pattern, frozenset[str]] = {}

    def replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """A member came, changed, or went."""
        for member, step in ((before, -1), (after, 1)):
            if member is None:
                continue
            for name in member.topics:
                self._names[name] += step
            if member.regex:
                self._patterns[Pattern.of(member)] += step
        self._names, self._patterns = +self._names, +self._patterns

    def names(self, member: ConsumerMember, topics: Topics) -> frozenset[str]:
        """All topics that one member subscribes to."""
        return member.topics | self._matching(Pattern.of(member), topics) if member.regex else member.topics

    def seen(self, topics: Topics) -> dict[str, SeenTopic]:
        """The topics that the group subscribes to and that are there."""
        names = set(self._names).union(*(self._matching(pattern, topics) for pattern in self._patterns))
        there = {name: topics.by_name[name] for name in sorted(names) if name in topics.by_name}
        return {name: SeenTopic(topic.id, len(topic.partitions)) for name, topic in there.items()}

    def _matching(self, pattern: Pattern, topics: Topics) -> frozenset[str]:
        era = topics.sight.era if topics.sight is not None else 0
        if self._era != era or self._known != topics.by_name.keys():
            self._known = frozenset(topics.by_name)
            self._era = era
            self._matches = {}
        if pattern not in self._matches:
            try:
                found = frozenset(filter(matcher(pattern.text), self._known))
            except ValueError:  # a member that was kept may have a pattern that would not be taken now
                found = frozenset()
            if topics.sight is not None:
                found = frozenset(t for t in found if topics.sight.sees(pattern.principal, pattern.host, t))
            self._matches[pattern] = found
        return self._matches[pattern]

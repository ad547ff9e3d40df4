"""What a consumer group subscribes to, by name and by pattern, against the topics that there are.

Rule 1: names and patterns are counted, so that a heartbeat costs as much as there are topics, not members.
Rule 2: a pattern must match the whole name (patterns.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from waterclock.broker.groups.reconcile import ConsumerMember
from waterclock.broker.patterns import matcher

if TYPE_CHECKING:
    from waterclock.broker.topics import Topics


class SeenTopic(NamedTuple):
    """A topic as the group last saw it: with other partitions, or made anew, it must be divided again."""

    id: UUID
    partitions: int


class Subscriptions:
    """The subscriptions of one group's members."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._patterns: Counter[str] = Counter()
        self._known: frozenset[str] = frozenset()  # topics when the patterns were last looked at
        self._matches: dict[str, frozenset[str]] = {}

    def replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """A member came, changed, or went."""
        for member, step in ((before, -1), (after, 1)):
            if member is None:
                continue
            for name in member.topics:
                self._names[name] += step
            if member.regex:
                self._patterns[member.regex] += step
        self._names, self._patterns = +self._names, +self._patterns

    def names(self, member: ConsumerMember, topics: Topics) -> frozenset[str]:
        """All topics that one member subscribes to."""
        return member.topics | self._matching(member.regex, topics) if member.regex else member.topics

    def seen(self, topics: Topics) -> dict[str, SeenTopic]:
        """The topics that the group subscribes to and that are there."""
        names = set(self._names).union(*(self._matching(text, topics) for text in self._patterns))
        there = {name: topics.by_name[name] for name in sorted(names) if name in topics.by_name}
        return {name: SeenTopic(topic.id, len(topic.partitions)) for name, topic in there.items()}

    def _matching(self, text: str, topics: Topics) -> frozenset[str]:
        if self._known != topics.by_name.keys():
            self._known, self._matches = frozenset(topics.by_name), {}
        if text not in self._matches:
            self._matches[text] = _matched(text, self._known)
        return self._matches[text]


def _matched(text: str, names: Iterable[str]) -> frozenset[str]:
    try:
        return frozenset(filter(matcher(text), names))
    except ValueError:  # a member that was kept may have a pattern that would not be taken now
        return frozenset()

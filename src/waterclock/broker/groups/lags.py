"""How far groups are behind, for the statistics.

Rule 1: no more than `LOOKED` committed offsets are looked at, and `MOST` groups told of: each look costs the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from waterclock.broker.statistics import GroupLag

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.groups.coordinator import GroupCoordinator
    from waterclock.broker.groups.offsets import GroupOffsets

LOOKED: Final = 10_000
MOST: Final = 20


def lags_of(offsets: GroupOffsets, groups: GroupCoordinator, topics: Topics) -> Mapping[str, GroupLag]:
    """Those most behind, the first one most."""
    found, left = dict[str, GroupLag](), LOOKED
    for name in offsets.groups():
        lag = seen = 0
        for (topic, number), committed in islice(offsets.all(name).items(), left):
            if (there := topics.by_name.get(topic)) is not None and number < len(there.partitions):
                lag, seen = lag + max(0, there.partitions[number].stable - committed.offset), seen + 1
        group = groups.get(name)
        found[name] = GroupLag(group.state_name if group else "", len(group.members) if group else 0, seen, lag)
        if (left := left - max(1, seen)) <= 0:
            break
    most = sorted(found.items(), key=lambda one: (-one[1].lag, one[0]))[:MOST]
    return dict(most)

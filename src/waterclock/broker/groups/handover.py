"""Changes of consumer groups become durable, and with them groups go over to the other protocol, or do not.

    step                                     if the store refuses it
    1. the group is, in memory, what it      it is what it was before: of the other protocol, if it has gone over with that.
       has become                            Who had waited there was answered to join again, and does.
    2. one commit: the group that it is,     the old one stands in the store, or the new one: never both, never none
       the one that it was goes
    3. who asked is answered                 answered that it could not be written

Rule 1: a group that goes over is another object, and nothing runs for the old one any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waterclock.broker.groups import migration
from waterclock.broker.groups.classic import NAMESPACE, ClassicGroup
from waterclock.broker.groups.consumer import NEVER, ConsumerGroup, GroupSnapshot
from waterclock.broker.groups.heartbeats import HeartbeatRefusal
from waterclock.broker.groups.presence import Presence
from waterclock.broker.groups.rebalance import Rebalance
from waterclock.broker.settings import Settings
from waterclock.broker.store import Entry, Store, Then

if TYPE_CHECKING:
    from waterclock.broker.topics import Topics

UNDIVIDED: Final = "undivided"  # of a classic group that was a consumer group, until it has divided by itself
Group: TypeAlias = ClassicGroup | ConsumerGroup


class Handover:
    """Keeps consumer groups, and puts them into `groups`, or classic ones in their place. `wall_ms()` is the date."""

    def __init__(
        self,
        groups: dict[str, Group],
        store: Store,
        *,
        classic: Rebalance,
        settings: Settings,
        topics: Topics,
        wall_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._store = store
        self._classic = classic
        self._settings = settings
        self._topics, self._wall_ms = topics, wall_ms
        self.presence = Presence(classic.sessions, classic.joins, settings, self.keep)
        self._came_from: dict[ConsumerGroup, ClassicGroup] = {}  # what a group was, until what it is is durable

    def keep(self, group: ConsumerGroup, then: Then) -> None:
        """Make durable what is new of a group; `then` is called when everything up to now is."""
        changes = group.changes()
        if not (changes or group.on_their_way):
            then(True)
            return
        before, became = (group.standing if changes else None), None
        if before is NEVER and group in self._came_from:
            changes += self._came_from[group].removals()
        if before is not None and migration.downgrades(group, before, self._settings):
            became = self._downgrade(group)
            changes = [*group.removals(), Entry(NAMESPACE, group.id, {**became.kept(), UNDIVIDED: not became.stable})]
        if changes:
            group.standing = group.stands()
        group.on_their_way += 1

        def kept(done: bool) -> None:
            group.on_their_way -= 1
            if done:
                self._came_from.pop(group, None)
            elif before is not None:
                self._take_back(group, became, before)
            then(done)

        self._store.commit(changes, kept)

    def _take_back(self, group: ConsumerGroup, became: ClassicGroup | None, before: GroupSnapshot) -> None:
        if became is not None:
            self._classic.retire(became)
            self._groups[group.id] = group
        self.presence.take_back(group, before)
        if before is not NEVER or self._groups.get(group.id) is not group:
            return
        came_from = self._came_from.pop(group, None)
        if came_from is None:
            del self._groups[group.id]
        else:
            self._groups[group.id] = came_from
            self._classic.reinstate(came_from)

    # From one protocol to the other

    def upgrade(self, group: ClassicGroup, hear: Callable[[ConsumerGroup], Any]) -> None:
        """A classic group is a consumer group, if that `hear`s who joins it; `HeartbeatRefusal` if it cannot be one."""
        migration.check_upgrade(group, self._settings)
        self._groups[group.id] = made = migration.upgraded(group, self._topics)
        self._came_from[made] = group
        try:
            hear(made)
        except HeartbeatRefusal:
            self._groups[group.id] = self._came_from.pop(made)
            raise
        self._classic.retire(group)
        self.presence.resume(made)

    def _downgrade(self, group: ConsumerGroup) -> ClassicGroup:
        """The classic group that it is now. Unless everybody is at its target the members divide anew."""
        for member_id in group.members:
            self.presence.forget(group, member_id)
        made = self._groups[group.id] = migration.downgraded(group, self._topics, self._wall_ms())
        self._classic.resume(made)
        if group.state_name != "Stable":
            self._classic.divide_anew(made)
        return made

    def resume(self, kept: dict[str, Any], group: ClassicGroup) -> None:
        """A classic group after a restart; one that was a consumer group divides if it had not."""
        self._classic.resume(group)
        if kept.get(UNDIVIDED):
            self._classic.divide_anew(group)

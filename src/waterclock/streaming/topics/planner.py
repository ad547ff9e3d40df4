"""How far the next batch of topics goes: partitions that are new, were cut shorter, or are gone. No Spark in this file.

Rule 1: a batch goes up to so many records further, never beyond `ending`; if nothing is new, the ends are those before.
Rule 2: new partitions are found while the pipeline runs, and read from their first record on.
Rule 3: a partition is given up only if it is still away after a while; it is left out of the ends from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from waterclock.kafka import Offsets, Partition
from waterclock.streaming.toml.topics import Where
from waterclock.streaming.topics.fetcher import gone, resolved
from waterclock.streaming.topics.offsets import up_to

if TYPE_CHECKING:
    from waterclock.kafka.client import Client

_NEW_PARTITIONS_EVERY_S = 2.0
_GONE_AFTER_S = 5.0  # a broker that has just started may not know its topics yet
_FORGOTTEN_AFTER_S = 60.0
_AGAIN_AFTER_S = 0.2


class Planner:
    """`ending` is None for a pipeline that goes on."""

    def __init__(
        self, client: Client, topics: Sequence[str], starting: Where, ending: Offsets | None, on_loss: str
    ) -> None:
        self.client = client
        self._topics, self._starting, self._ending, self._on_loss = topics, starting, ending, on_loss
        self._places: list[Partition] = []
        self._looked_s = 0.0
        self.has_more = False  # than the batch takes whose ends were asked for last

    def first(self) -> Offsets:
        """Where the first batch begins."""
        self._look()
        return resolved(self.client, self._starting, self._places)

    def ends(self, before: Mapping[Partition, int], most: int | None) -> Offsets:
        """The ends of a batch that begins at `before`, at most about `most` records further; WaterclockError if records
        are gone and `on_loss` is "fail"."""
        latest = self._latest()
        lost = {place: at for place, at in before.items() if at > latest.get(place, -1)}
        if lost:
            latest = self._confirmed(before)
            lost = {place: at for place, at in before.items() if at > latest.get(place, -1)}
        for place, at in lost.items():
            if self._on_loss == "fail":
                raise gone(place, latest.get(place, 0), at)
        back = {place: latest[place] for place in lost if place in latest}
        if self._ending is not None:  # of a run to the end, if the topics ended at its start
            limits = {**before, **self._ending}
            latest = {place: min(end, limits[place]) for place, end in latest.items() if place in limits}
        ends = {**up_to(before, latest, most), **back}
        self.has_more = any(at < latest[place] for place, at in ends.items())
        return ends

    @property
    def is_due(self) -> bool:
        """Whether the partitions were last looked up a while ago."""
        now_s = self.client.clock.monotonic_s()
        return not self._places or now_s - self._looked_s > _NEW_PARTITIONS_EVERY_S

    def _look(self) -> None:
        self._places = self.client.partitions(self._topics)
        self._looked_s = self.client.clock.monotonic_s()

    def _latest(self) -> Offsets:
        """The end of every partition; which ones there are is looked up now and then."""
        if self.is_due:
            self._look()
        return self.client.ends(self._places)

    def _confirmed(self, before: Mapping[Partition, int]) -> Offsets:
        """The ends once more, after a while, if some lie before what was read, or are not there at all. A partition that is
        given up is forgotten: were it only away for a while, it would be read a second time."""
        clock = self.client.clock
        began_s = clock.monotonic_s()
        while True:
            self._look()
            latest = self.client.ends(self._places)
            if all(at <= latest.get(place, -1) for place, at in before.items()):
                return latest
            forgets = self._on_loss != "fail" and not before.keys() <= latest.keys()
            if clock.monotonic_s() - began_s > (_FORGOTTEN_AFTER_S if forgets else _GONE_AFTER_S):
                return latest
            clock.sleep_s(_AGAIN_AFTER_S)

"""Which of the messages that are due one turn takes, and which of them it puts aside.

Rule 1: what is known before is not tried: a message is put aside if it was refused by itself, or if its target is not
        there, or takes nothing of this relay.
Rule 2: a target that may refuse is in doubt (doubts.py), and has turns of its own, in between those of all others. So is
        one that may be sent more than it takes in one batch.
Rule 3: up to `TOGETHER` are put aside in one turn: each is read from the log again, and others wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from waterclock.relay.owner.context import BATCH_BYTES
from waterclock.relay.owner.doubts import TOGETHER
from waterclock.relay.owner.owner import Owner
from waterclock.relay.store.rows import Array

_AROUND: Final = 160  # bytes at most, of a message in its batch, beside what its row counts and the names of the input


class Chosen(NamedTuple):
    """`rows` are to be delivered, `aside` are not, for these `reasons` by origin. `is_alone`: all are for one target in
    doubt; `is_probe`: and that is only to be tried."""

    rows: Array
    aside: Array
    reasons: Mapping[int, str]
    is_alone: bool
    is_probe: bool


def choose(owner: Owner, most: int, most_letters: int) -> Chosen:
    """What the next turn of `owner` takes, `most` messages at most, `most_letters` of them to be put aside. They wait no
    more; all others do. ConnectionLost if Kafka is away."""
    doubts, rows = owner.doubts, owner.due(owner.context.clock.wall_ms(), most)
    if doubts.is_empty:
        owner.was_alone = False
    else:  # rule 2
        rows = doubts.sift(rows)
        owner.was_alone = doubts.has_portion and not (owner.was_alone and len(rows))
        if owner.was_alone:
            owner.put_back(rows)
            rows = doubts.portion(partial(_sizes, owner), partial(_limit, owner), most)
        else:
            rows = np.concatenate([doubts.to_put_aside(), rows])
    names = {number: owner.store.targets[number] for number in np.unique(rows["target"]).tolist()}
    refusing = owner.context.targets.refusing(names.values()) if names else {}
    owner.unasked |= refusing.keys()
    for name in owner.unasked.intersection(names.values()) - refusing.keys():
        owner.unasked.discard(name)
        owner.producer.look_again(name)  # librdkafka remembers that there was no such topic, or no right to it
    reasons = dict(owner.refused)
    for number in (number for number, name in names.items() if name in refusing):
        reasons.update(dict.fromkeys(rows["origin"][rows["target"] == number].tolist(), refusing[names[number]]))
    here = np.isin(rows["origin"], list(reasons)) if reasons else np.zeros(len(rows), bool)
    bad, most_aside = np.flatnonzero(here), max(0, min(TOGETHER, most_letters))
    if len(bad) > most_aside:  # rule 3
        cut = int(bad[most_aside])
        put_back(owner, rows[cut:], owner.was_alone)
        rows, here = rows[:cut], here[:cut]
    stays = rows[~here] if owner.was_alone else _fitting(owner, rows[~here], names)
    return Chosen(stays, rows[here], reasons, owner.was_alone, owner.was_alone and owner.doubts.is_probe)


def put_back(owner: Owner, rows: Array, is_alone: bool) -> None:
    """These are for another turn."""
    (owner.doubts if is_alone else owner).put_back(rows)


def _sizes(owner: Owner, rows: Array) -> Array:
    """How many bytes each takes in a batch, at most."""
    return np.asarray(rows["length"].astype("i8") + _AROUND + len(owner.context.place_of(owner.number)))


def _limit(owner: Owner, target: int) -> int | None:
    name = owner.store.targets[target]
    owner.context.targets.refusing([name])  # so that it is known
    return owner.context.targets.limit(name)


def _fitting(owner: Owner, rows: Array, names: Mapping[int, str]) -> Array:
    """Those whose targets take them for sure, as far as it is known what these take; the others' are in doubt."""
    sizes = _sizes(owner, rows)
    totals = np.bincount(rows["target"], sizes)
    for number, name in names.items():
        limit = owner.context.targets.limit(name)
        if limit is None or number >= len(totals) or totals[number] <= limit:
            continue
        if limit < BATCH_BYTES or sizes[rows["target"] == number].max() > limit:
            owner.doubts.add(number)
    return rows if owner.doubts.is_empty else owner.doubts.sift(rows)

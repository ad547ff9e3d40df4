"""What is due next, with id, key and why it waits: of a running relay's wheels first, then of the spans of its files that
come next, until there are enough.

Rule 1: the relay's lock is held for a slice at a time, as for series (gathering.py); no more than `LOOKED` rows of a
        partition's files are looked at. What was not looked through whole is left out, and the answer says from when on.
Rule 2: the bytes of a message are read in the slice in which its row is: a span may be split after it.
Rule 3: what is delivered or cancelled between two slices may still be in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from waterclock.letters import HIDDEN
from waterclock.relay.owner.owner import Owner
from waterclock.relay.statistics import DueMessage, DueStatistics
from waterclock.relay.store import unpack
from waterclock.relay.store.rows import Array
from waterclock.relay.watching.gathering import SLICE, Lock, Owners
from waterclock.relay.wire.request import Flag

MOST: Final = 200
LOOKED: Final = 1_000_000
FEW: Final = 4  # of a slice, so many times the wanted ones are asked for whether they are pending


class _Slice(NamedTuple):
    """Pending rows, what they wait for besides their time; `end_ms`: all that is due before was in this slice or those
    before it, None if more of the same comes; `looked`: rows of files that it took."""

    rows: Array
    why: str = ""
    end_ms: int | None = None
    looked: int = 0


def count_of(text: str) -> int:
    """How many messages are asked for: a number from 1 to `MOST`; ValueError for another text.

    >>> count_of("20")
    20
    """
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ValueError(f"ask for 1 to {MOST} messages, such as /due/20")
    return int(text)


def due_next(count: int, owners: Owners, lock: Lock, topic: str, now_ms: int, hides: bool = False) -> DueStatistics:
    """The first `count` by due time; from any thread without the lock. With `hides` no key is shown."""
    found: dict[str, DueMessage] = {}
    known_to = []
    with lock:
        numbers = sorted(owners)
    for number in numbers:
        own, known_to_ms = _of_partition(count, number, owners, lock, f"{topic}-{number}", now_ms)
        found.update(own)
        known_to += [] if known_to_ms is None else [known_to_ms]
    known_to_ms = min(known_to, default=None)
    messages = sorted(found.values(), key=lambda one: (one.due_ms, one.origin))[:count]
    if hides:
        messages = [replace(one, key=HIDDEN if one.key else "") for one in messages]
    if known_to_ms is not None:
        messages = [one for one in messages if one.due_ms < known_to_ms]
    return DueStatistics(tuple(messages), known_to_ms if len(messages) < count else None)


def _of_partition(
    count: int, number: int, owners: Owners, lock: Lock, place: str, now_ms: int
) -> tuple[dict[str, DueMessage], int | None]:
    """The first ones, and from when on others are not known."""
    kept: dict[str, DueMessage] = {}
    known_to_ms, looked = 0, 0
    if (owner := owners.get(number)) is None:
        return kept, None
    slices = chain(_near(owner), _far(owner))
    while True:
        with lock:
            piece = next(slices, None) if owners.get(number) is owner else None
            if piece is None:
                return kept, None
            kept |= _read(owner, piece, count, place, now_ms)
        kept = {one.origin: one for one in sorted(kept.values(), key=lambda one: (one.due_ms, one.origin))[:count]}
        looked += piece.looked
        known_to_ms = piece.end_ms or known_to_ms
        if looked > LOOKED or (len(kept) == count and max(one.due_ms for one in kept.values()) < known_to_ms):
            return kept, known_to_ms


def _near(owner: Owner) -> Iterator[_Slice]:
    """What is in memory."""
    yield _Slice(owner.doubts.rows, "its topic has refused messages: it is tried again by itself")
    yield _Slice(owner.ready)
    for rows in owner.due_soon.waiting(10 * SLICE):
        yield _Slice(rows)
    yield _Slice(owner.ready[:0], end_ms=owner.store.loaded_until)


def _far(owner: Owner) -> Iterator[_Slice]:
    """What lies in files, one span after the other."""
    store, spans = owner.store, owner.store.spans()
    for span in spans:
        if span.end_ms > store.loaded_until:
            for rows in store.pending_with(None, SLICE, [max(span.start_ms, store.loaded_until)]):
                yield _Slice(rows, looked=SLICE)
            yield _Slice(owner.ready[:0], end_ms=span.end_ms)


def _read(owner: Owner, piece: _Slice, count: int, place: str, now_ms: int) -> dict[str, DueMessage]:
    """The first `count` of a slice, as they are shown; under the lock. Rule 2."""
    rows = _first(piece.rows, FEW * count)
    rows = rows[owner.store.is_pending(rows["origin"])]
    if len(rows) < min(count, len(piece.rows)):  # most of the first ones are gone: all are looked at
        rows = piece.rows[owner.store.is_pending(piece.rows["origin"])]
    rows = _first(rows, count)
    columns = zip(*(rows[name].tolist() for name in ("due", "origin", "target", "flags")), strict=True)
    found = {}
    for (due_ms, origin, target, flags), blob in zip(columns, owner.store.read(rows), strict=True):
        payload = unpack(blob)
        id, key = ((part or b"").decode("utf-8", "backslashreplace") for part in (payload.id, payload.key))
        why = owner.refused.get(origin, "") or piece.why or (_held_up(owner) if due_ms <= now_ms else "")
        name = f"{place}-{origin}"
        found[name] = DueMessage(name, due_ms, owner.store.targets[target], id, key, why, bool(flags & Flag.SERIES))
    return found


def _first(rows: Array, count: int) -> Array:
    """The first ones by due time, in no order."""
    return np.asarray(rows[np.argpartition(rows["due"], count)[:count]]) if len(rows) > count else rows


def _held_up(owner: Owner) -> str:
    """Why what is due is not delivered at once."""
    if not owner.has_caught_up:
        return "the input is read to its end first"
    return "the disk has no room" if owner.held else ""

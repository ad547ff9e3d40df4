"""Whose events wait for their order, and for what: the fullest keys of a bucket, for people who look at a pipeline.

Rule 1: it is looked at when a step ends, of the keys that are awake. One that rests is as it was when it went to rest, so
        what was said of it stays true until it is woken.
Rule 2: a bucket remembers `SHOWN` keys. One that was not among them when it went to rest is not seen until it is woken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waterclock.rules.events import Key
from waterclock.rules.model import Rules
from waterclock.rules.ordering import awaited
from waterclock.streaming.state.states import States

SHOWN: Final = 5


class HeldKey(NamedTuple):
    """A key, how many of its events are held, and what ends it: the number that is missing, or nothing but time if it is
    None; and the watermark at which the first of them is released, given up or put aside, in microseconds. None: never."""

    key: Key
    events: int
    missing: int | None
    until_us: int | None


def without(known: Sequence[HeldKey], woken: pa.Array) -> list[HeldKey]:
    """Those of `known` that rest on."""
    if not known:
        return []
    among = pc.is_in(woken, value_set=pa.array([each.key for each in known], woken.type))
    gone = set(woken.filter(among).to_pylist())
    return [each for each in known if each.key not in gone]


def fullest(known: Sequence[HeldKey], awake: States, rules: Rules) -> list[HeldKey]:
    """`SHOWN` of those that rest and those that are awake, the fullest first."""
    held = awake.held
    first = np.argpartition(-held, SHOWN)[:SHOWN] if len(held) > SHOWN else np.arange(len(held))
    first = first[held[first] > 0]
    keys, packed = (column.take(pa.array(first)).to_pylist() for column in (awake.keys, awake.packed))
    found = [
        HeldKey(key, events, *_awaited(state, rules))
        for key, events, state in zip(keys, held[first].tolist(), packed, strict=True)
    ]
    return sorted([*known, *found], key=lambda each: -each.events)[:SHOWN]


def _awaited(packed: bytes, rules: Rules) -> tuple[int | None, int | None]:
    """(the missing number, until) from the begin of a key's state; what it holds may be long, and is not unpacked."""
    reader = msgpack.Unpacker()
    reader.feed(packed)
    reader.read_array_header()  # the order's part comes first (rules/engine.py, `state_of`)
    return awaited(reader, None if rules.sequence is None else rules.ordering)

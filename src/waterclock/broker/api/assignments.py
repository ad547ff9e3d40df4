"""Which brokers a client wants its partitions on: there is one, so every partition's list is exactly that.

Rule 1: each function gives the sentence about what is wrong, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from waterclock.broker.identity import NODE


def of_new_topic(numbers: Sequence[int], brokers: Iterable[Sequence[int]]) -> str | None:
    """What is wrong with partitions `numbers` on `brokers`, of a topic that is to be made.

    >>> of_new_topic([0, 2], [[1], [1]])
    'the partitions of an assignment are numbered from 0 without a gap'
    """
    for number in numbers:
        if numbers.count(number) > 1:
            return f"partition {number} is assigned twice"
    return of_partitions(brokers) or _gap(numbers)


def _gap(numbers: Sequence[int]) -> str | None:
    if sorted(numbers) == list(range(len(numbers))):
        return None
    return "the partitions of an assignment are numbered from 0 without a gap"


def of_partitions(brokers: Iterable[Sequence[int]]) -> str | None:
    """What is wrong with the lists of brokers, one for each partition."""
    return next((wrong for wrong in map(_of_one, brokers) if wrong), None)


def _of_one(brokers: Sequence[int]) -> str | None:
    if not brokers:
        return "an assignment names no broker for a partition"
    strangers = [broker for broker in brokers if broker != NODE]
    if strangers:
        return f"an assignment names broker {strangers[0]}: there is only broker {NODE}"
    if len(brokers) > 1:
        return f"an assignment names broker {NODE} twice for one partition"
    return None

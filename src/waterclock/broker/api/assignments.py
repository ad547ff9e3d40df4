"""Which brokers a client wants its partitions on. All of them have every partition; who is named must be one of them.

Rule 1: each function gives the sentence about what is wrong, or None.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence


def of_new_topic(numbers: Sequence[int], brokers: Iterable[Sequence[int]], known: Container[int]) -> str | None:
    """What is wrong with partitions `numbers` on `brokers`, of a topic that is to be made.

    >>> of_new_topic([0, 2], [[1], [1]], {1})
    'the partitions of an assignment are numbered from 0 without a gap'
    """
    for number in numbers:
        if numbers.count(number) > 1:
            return f"partition {number} is assigned twice"
    return of_partitions(brokers, known) or _gap(numbers)


def _gap(numbers: Sequence[int]) -> str | None:
    if sorted(numbers) == list(range(len(numbers))):
        return None
    return "the partitions of an assignment are numbered from 0 without a gap"


def of_partitions(brokers: Iterable[Sequence[int]], known: Container[int]) -> str | None:
    """What is wrong with the lists of brokers, one for each partition."""
    return next((wrong for wrong in (_of_one(of_one, known) for of_one in brokers) if wrong), None)


def _of_one(brokers: Sequence[int], known: Container[int]) -> str | None:
    if not brokers:
        return "an assignment names no broker for a partition"
    strangers = [broker for broker in brokers if broker not in known]
    if strangers:
        return f"an assignment names broker {strangers[0]}, which is not there"
    if len(set(brokers)) < len(brokers):
        return "an assignment names a broker twice for one partition"
    return None

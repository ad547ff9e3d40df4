"""The items of an iterator, made by a thread of their own while the ones before are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")
_END: Final[Any] = object()


def ahead(items: Generator[T], hurry: Callable[[], object] = lambda: None, depth: int = 2) -> Generator[T]:
    """Up to `depth` items ahead; an error comes where its item would have come. Closed, it waits for the item that is
    being made, which `hurry` has come soon, and `items` are closed.

    >>> list(ahead(item for item in [1, 2, 3]))
    [1, 2, 3]
    """
    with ThreadPoolExecutor(1, "ahead") as thread:
        made = deque(thread.submit(next, items, _END) for _ in range(depth))
        try:
            while (item := made.popleft().result()) is not _END:
                made.append(thread.submit(next, items, _END))
                yield item
        finally:
            hurry()
            for each in made:
                each.cancel()
            thread.submit(items.close)  # there, for it may be at work still

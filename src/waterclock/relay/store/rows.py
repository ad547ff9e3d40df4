"""A pending message as a row of 40 bytes, and the arrays of this room.

A row says where the bytes of its message lie (`pos`, `length`), in the data file of the span that it is filed in.
That holds for as long as the span is not split: for good once it was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waterclock.errors import UsageError

Array = npt.NDArray[Any]

ROW: Final = np.dtype(
    [
        ("due", "<i8"),  # ms since the epoch
        ("origin", "<i8"),  # offset of the first append to the input
        ("pos", "<u8"),  # the store fills in this and the rest
        ("length", "<u4"),
        ("crc", "<u4"),  # of the bytes
        ("id", "<u4"),  # the lower half of the id's hash; 0 if there is no id
        ("target", "<u2"),  # PartitionStore.targets[target] is the topic
        ("flags", "<u2"),  # the owner's
    ]
)
MOST_DUE: Final = 2**47  # ms; the year 6429. A due time is below it
MOST_ORIGIN: Final = 2**62
MOST_TARGETS: Final = 65_535  # the last number is `slots.OTHER`


def rows_of(dues: Iterable[int], origins: Iterable[int]) -> Array:
    """Rows to be appended.

    >>> rows_of([5_000, 7_000], [0, 1])["due"].tolist()
    [5000, 7000]
    """
    due, origin = np.asarray(list(dues), "<i8"), np.asarray(list(origins), "<i8")
    rows = np.zeros(len(due), ROW)
    rows["due"], rows["origin"] = due, origin
    return rows


class TopicNumbers:
    """The topics that messages of a partition were ever for, by number: a row has room for two bytes, not for a name. A
    number is given once.

    >>> targets = TopicNumbers(["mails"])
    >>> targets.numbers(["reminders", "mails"]), targets.names
    ([1, 0], ['mails', 'reminders'])
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def numbers(self, names: Sequence[str]) -> list[int]:
        """The number of each; a new topic gets the next one. UsageError if there are too many."""
        for name in sorted({*names} - self._numbers.keys()):
            if len(self.names) == MOST_TARGETS:
                raise UsageError(
                    f"one partition has messages for {MOST_TARGETS} topics already, and cannot take one for {name}: "
                    "use more partitions"
                )
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return [self._numbers[name] for name in names]

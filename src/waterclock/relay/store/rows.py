"""A pending message as a row of 40 bytes, and the arrays of this room.

A row says where the bytes of its message lie (`pos`, `length`), in the data file of the span that it is filed in.
That holds for as long as the span is not split: for good once it was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ROW: Final = np.dtype(
    [
        ("due", "<i8"),  # ms since the epoch
        ("origin", "<i8"),  # offset of the first append to the input
        ("pos", "<u8"),  # the store fills in this and the rest
        ("length", "<u4"),
        ("crc", "<u4"),  # of the bytes
        ("id", "<u4"),  # the lower half of the id's hash; 0 where there is no id
        ("target", "<u2"),  # PartitionStore.targets[target] is the topic
        ("flags", "<u2"),  # the owner's
    ]
)
MOST_DUE: Final = 2**47  # ms; the year 6429. A due time is below it
MOST_ORIGIN: Final = 2**62


def rows_of(dues: Iterable[int], origins: Iterable[int]) -> Array:
    """Rows to be appended.

    >>> rows_of([5_000, 7_000], [0, 1])["due"].tolist()
    [5000, 7000]
    """
    due, origin = np.asarray(list(dues), "<i8"), np.asarray(list(origins), "<i8")
    rows = np.zeros(len(due), ROW)
    rows["due"], rows["origin"] = due, origin
    return rows

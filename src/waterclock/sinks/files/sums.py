"""The sum of a file's bytes: made on their way into the file, and looked at by who reads it.

Rule 1: a file is summed as it was meant to be, not as it lies there: what a disk or a mount did to it is told too.
Rule 2: who reads sums the bytes that are read, and no others.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any


class SummedStream:
    """A stream to write to, in front of `stream`, one of pyarrow's; `sum` is that of all that was written.

    >>> import pyarrow as pa
    >>> stream = SummedStream(pa.BufferOutputStream())
    >>> stream.write(b"rows")
    4
    >>> stream.sum == sum_of(b"rows")
    True
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._sum = stream, sha256()

    @property
    def sum(self) -> str:
        return self._sum.hexdigest()

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self._sum.update(data)
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._stream.close()

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


def sum_of(data: Any) -> str:
    """The sum of bytes that were read."""
    return sha256(data).hexdigest()

"""Blobs by number, beside the one value that a batch always reads: what lies here is read when it is needed.

Rule 1: a blob is written once, under a number of its own, and taken away when it serves no more.

Blobs are compressed (zstd, with their length in front): what rests is a third as long, and a checkpoint keeps it several
times over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

import pyarrow as pa

from waterclock.errors import StateMismatch

_LENGTH_BYTES = 4
_AT_ONCE = 512
# Arrow refuses another length than that of the frame; of lz4 it takes a larger one, with what lay in memory behind it.
_CODEC = "zstd"


class Blobs(Protocol):
    """Where blobs lie: a dict, or Spark's state store."""

    def __getitem__(self, number: int, /) -> bytes: ...
    def __setitem__(self, number: int, blob: bytes, /) -> None: ...
    def __delitem__(self, number: int, /) -> None: ...


class BlobStore:
    """Numbers given out one by one from `free` on; `grown` says by how many bytes the blobs became more."""

    def __init__(self, blobs: Blobs, free: int = 0) -> None:
        self._blobs = blobs
        self.free = free
        self.grown = 0

    def put(self, blob: bytes) -> int:
        """The number of a new blob."""
        number, self.free = self.free, self.free + 1
        self._blobs[number] = stored = compressed(blob)
        self.grown += len(stored)
        return number

    def get(self, number: int) -> bytes:
        return expanded(self._blobs[number])

    def get_all(self, numbers: Sequence[int]) -> list[bytes]:
        """Small blobs, decompressed some hundred at a time: to begin with each costs more than most of it."""
        parts = [numbers[first : first + _AT_ONCE] for first in range(0, len(numbers), _AT_ONCE)]
        return [blob for part in parts for blob in _all_expanded([self._blobs[number] for number in part])]

    def pop(self, number: int) -> bytes:
        stored = self._blobs[number]
        self.remove([number], len(stored))
        return expanded(stored)

    def remove(self, numbers: Iterable[int], size: int) -> None:
        """Take away blobs that take `size` bytes together, as `grown` counted them."""
        for number in numbers:
            del self._blobs[number]
        self.grown -= size


def compressed(blob: bytes) -> bytes:
    length = len(blob).to_bytes(_LENGTH_BYTES, "little")
    return length + pa.compress(blob, codec=_CODEC, asbytes=True)  # type: ignore[no-any-return]


def expanded(stored: bytes | memoryview) -> bytes:
    """What was `compressed`; StateMismatch where it is damaged."""
    return _decompressed(memoryview(stored)[_LENGTH_BYTES:], _length(stored))


def _all_expanded(stored: Sequence[bytes]) -> list[bytes]:
    """Each as `expanded`: frames of zstd that lie one behind the other are decompressed as one."""
    ends = [0, *accumulate(map(_length, stored))]
    blobs = _decompressed(b"".join([blob[_LENGTH_BYTES:] for blob in stored]), ends[-1])
    return [blobs[first:last] for first, last in pairwise(ends)]


def _length(stored: bytes | memoryview) -> int:
    return int.from_bytes(stored[:_LENGTH_BYTES], "little")


def _decompressed(frames: bytes | memoryview, length: int) -> bytes:
    try:
        return pa.decompress(frames, length, codec=_CODEC, asbytes=True)  # type: ignore[no-any-return]
    except (pa.ArrowException, OSError) as error:
        raise damaged(error) from None


def whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that was read from a store; StateMismatch where it is damaged: Arrow believes what it reads, and would look
    for texts outside of it."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged(error) from None
    return batch


def damaged(why: object) -> StateMismatch:
    return StateMismatch(
        f"the stored state is damaged ({why}): restore the checkpoint and the sink from a copy of both, or start "
        "with a new checkpoint and sink"
    )


class MapState:
    """Blobs in a map state of Spark's `transformWithState`: bigint -> binary."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, number: int, /) -> bytes:
        found = self._state.getValue((number,))
        if found is None:
            raise StateMismatch(
                f"the stored state lacks its blob {number}, so the checkpoint is damaged: restore it and the sink from a "
                "copy of both, or start with a new checkpoint and sink"
            )
        return bytes(found[0])

    def __setitem__(self, number: int, blob: bytes, /) -> None:
        self._state.updateValue((number,), (blob,))

    def __delitem__(self, number: int, /) -> None:
        self._state.removeKey((number,))

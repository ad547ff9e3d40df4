"""A pending message as a row of 40 bytes, its bytes as the store keeps them (a blob), and the arrays of this room.

A row says where the blob of its message lies (`pos`, `length`), in the data file of the span that it is filed in.
That holds for as long as the span is not split: for good once it was loaded.

    a blob: flags (u1), length of the id (u1), of the key (u1) | id | key | value: all that is left
    if a flag says LONG, the head goes on: length of the key (u4), of the value (u4), number of headers (u4), and headers
    stand behind the value: length of the name (u4), of the value (i4, -1: null) | name | value

Rule 1: a message without headers, whose key is short, has a head of three bytes: there are millions of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

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
MOST_TARGETS: Final = 65_535  # the last number is `OTHER` in origins.py


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
    """The topics that messages of a partition are for, by number: a row has room for two bytes, not for a name. Once all
    are given, one that nothing pending has is given anew: `anew` are these, and of what is settled they say nothing.

    >>> targets = TopicNumbers(["mails"])
    >>> targets.numbers(["reminders", "mails"], set), targets.names
    ([1, 0], ['mails', 'reminders'])
    """

    def __init__(self, names: Sequence[str] = (), anew: Iterable[int] = ()) -> None:
        self.names, self.anew = list(names), set(anew)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._free = set[int]()

    def numbers(self, names: Sequence[str], pending: Callable[[], set[int]]) -> list[int]:
        """The number of each; a new topic gets the next one. `pending()`: those of what is pending. UsageError if these
        are all."""
        wanted = {*names}
        self._free.difference_update(self._numbers[name] for name in wanted & self._numbers.keys())
        for name in sorted(wanted - self._numbers.keys()):
            number = len(self.names)
            if number < MOST_TARGETS:
                self.names.append(name)
            else:
                number = self._freed(name, wanted, pending)
                del self._numbers[self.names[number]]
                self.names[number] = name
                self.anew.add(number)
            self._numbers[name] = number
        return [self._numbers[name] for name in names]

    def _freed(self, name: str, wanted: set[str], pending: Callable[[], set[int]]) -> int:
        if not self._free:
            taken = {self._numbers[one] for one in wanted & self._numbers.keys()}
            self._free = {*range(MOST_TARGETS)} - taken - pending()
        if not self._free:
            raise UsageError(
                f"in one partition messages for {MOST_TARGETS} topics are pending, and it cannot take one for {name}: use "
                "more partitions"
            )
        return self._free.pop()

    def was_for(self, number: int, is_pending: bool) -> str:
        """The topic of a message with that number."""
        return self.names[number] if is_pending or number not in self.anew else "(not known)"


_SHORT: Final = struct.Struct("<BBB")
_LONG: Final = struct.Struct("<BBBIII")
_HEADER: Final = struct.Struct("<Ii")
_NO_VALUE, _NO_KEY, _IS_LONG = 1, 2, 4  # flags; the last one is the largest
MOST_ID: Final = 255  # bytes

Header = tuple[str, bytes | None]


class Payload(NamedTuple):
    """What is handed on when the message is due; `id` is empty if it has none."""

    value: bytes | None
    key: bytes | None
    id: bytes
    headers: list[Header]


def pack(value: bytes | None, key: bytes | None, id: bytes = b"", headers: Sequence[Header] = ()) -> bytes:
    """The bytes of a message. ValueError for an id of more than 255 bytes.

    >>> unpack(pack(b"hello", None, b"cart-17", [("a", None)]))
    Payload(value=b'hello', key=None, id=b'cart-17', headers=[('a', None)])
    """
    if len(id) > MOST_ID:
        raise ValueError(f"id must have at most {MOST_ID} bytes, got {len(id)}")
    flags = (_NO_VALUE if value is None else 0) | (_NO_KEY if key is None else 0)
    key, value = key or b"", value or b""
    if not headers and len(key) < 256:
        return b"".join((_SHORT.pack(flags, len(id), len(key)), id, key, value))
    parts = [_LONG.pack(flags | _IS_LONG, len(id), 0, len(key), len(value), len(headers)), id, key, value]
    for text, held in headers:
        name = text.encode()
        parts += (_HEADER.pack(len(name), -1 if held is None else len(held)), name, held or b"")
    return b"".join(parts)


def unpack(blob: bytes) -> Payload:
    """The message that `pack` was given."""
    flags, id_size, key_size = blob[0], blob[1], blob[2]
    start, end, count = _SHORT.size, len(blob), 0
    if flags & _IS_LONG:
        _, _, _, key_size, value_size, count = _LONG.unpack_from(blob)
        start = _LONG.size
        end = start + id_size + key_size + value_size
    key_at = start + id_size
    value_at = key_at + key_size
    value = None if flags & _NO_VALUE else blob[value_at:end]
    key = None if flags & _NO_KEY else blob[key_at:value_at]
    headers: list[Header] = []
    for _ in range(count):
        name_size, held_size = _HEADER.unpack_from(blob, end)
        held_at = end + _HEADER.size + name_size
        end = held_at + max(0, held_size)
        name = blob[held_at - name_size : held_at].decode()
        headers.append((name, None if held_size < 0 else blob[held_at:end]))
    return Payload(value, key, blob[start:key_at], headers)


def handed_on(
    blobs: Iterable[bytes], behind: Iterable[list[Header]]
) -> Iterator[tuple[bytes | None, bytes | None, list[Header]]]:
    """Value, key and headers of each message, with some more headers `behind` these; there are tens of thousands.

    >>> list(handed_on([pack(b"hello", b"k", b"cart-17", [("a", b"b")])], [[("c", b"d")]]))
    [(b'hello', b'k', [('a', b'b'), ('c', b'd')])]
    """
    short = _SHORT.size
    for blob, more in zip(blobs, behind, strict=True):
        if blob[0]:
            value, key, _, headers = unpack(blob)
            yield value, key, headers + more
        else:  # as most are; a call for each would double what it takes
            key_at = short + blob[1]
            value_at = key_at + blob[2]
            yield blob[value_at:], blob[key_at:value_at], more


def ids_of(blobs: Sequence[bytes]) -> list[bytes]:
    """The id of each; empty if there is none.

    >>> ids_of([pack(b"", b"", b"cart-17"), pack(b"", b"")])
    [b'cart-17', b'']
    """
    found = []
    for blob in blobs:
        size, start = blob[1], _LONG.size if blob[0] >= _IS_LONG else _SHORT.size
        found.append(blob[start : start + size] if size else b"")
    return found

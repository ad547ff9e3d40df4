"""Kafka's own way from a message's key to its partition, written anew: the capture leaves it to its client.

Rule 1: murmur2 of 32 bits with Kafka's seed, without its sign, modulo the number of partitions.
"""

from __future__ import annotations

_MIX, _SEED, _ALL = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Where a message with that key belongs.

    >>> partition_of(b"foobar", 4)
    2
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash, as a number from 0 on.

    >>> murmur2(b"21") - 2**32, murmur2(b"foobar") - 2**32, murmur2(b"abc")
    (-973932308, -790332482, 479470107)
    """
    found, whole = _SEED ^ len(data), len(data) // 4 * 4
    for start in range(0, whole, 4):
        four = int.from_bytes(data[start : start + 4], "little") * _MIX & _ALL
        four = (four ^ four >> 24) * _MIX & _ALL
        found = (found * _MIX & _ALL) ^ four
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _MIX & _ALL
    found = (found ^ found >> 13) * _MIX & _ALL
    return found ^ found >> 15

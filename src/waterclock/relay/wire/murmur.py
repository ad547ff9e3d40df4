"""Which partition Kafka's own clients choose for a key.

Rule 1: the same as the Java client and librdkafka's murmur2: whoever sends by key finds the partition that we find.
"""

from __future__ import annotations

_SEED, _M, _R, _MASK = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The number of the partition.

    >>> partition_of(b"cart-17", 3)
    1
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned number of 32 bits.

    >>> murmur2(b"21") - 2**32, murmur2(b"foobar") - 2**32, murmur2(b"a-little-bit-long-string") - 2**32
    (-973932308, -790332482, -985981536)
    """
    h = _SEED ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15

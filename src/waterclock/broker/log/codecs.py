"""The compressions of record batches.

Rule 1: what cannot be uncompressed, or would become larger than MOST_UNPACKED, is a ValueError: a few bytes can stand for
    gigabytes, and the sender of a batch chooses them.
Rule 2: gzip is unpacked in portions, between which others may have their turn. The other libraries cannot; they are so
    quick that MOST_UNPACKED takes some tens of milliseconds.
Source: compressions by the package cramjam, gzip by the standard library; snappy in the framing of Java's library.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from typing import Any, Final, TypeVar

from waterclock.broker.net.outgoing import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MOST_UNPACKED: Final = 32 << 20
PORTION: Final = 128 << 10  # bytes of gzip that are unpacked at once
GZIP_FORMAT: Final = 31  # zlib's number for it
XERIAL: Final = b"\x82SNAPPY\0"  # the framing that Java's library puts around snappy
XERIAL_HEAD: Final = XERIAL + struct.pack(">ii", 1, 1)
SNAPPY_BLOCK: Final = 32 << 10
Outcome = TypeVar("Outcome")


def uncompressed(codec: int, body: Buffer) -> bytes:
    """What was compressed; ValueError if it cannot be said.

    >>> uncompressed(GZIP, compressed(GZIP, b"records"))
    b'records'
    """
    return at_once(in_portions(codec, body))


def at_once(steps: Generator[None, None, Outcome]) -> Outcome:
    """What they return, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def in_portions(codec: int, body: Buffer) -> Generator[None, None, bytes]:
    """The same, with a pause wherever there can be one."""
    if codec == NONE:
        return bytes(body)
    if codec == GZIP:
        return (yield from _gunzip(body))
    if codec > ZSTD:
        raise ValueError(f"there is no compression {codec}")
    import cramjam

    try:
        if codec == SNAPPY:
            return _snappy(bytes(body), cramjam.snappy)
        return _into(cramjam.lz4 if codec == LZ4 else cramjam.zstd, body, cramjam.DecompressionError)
    except cramjam.DecompressionError as error:
        raise ValueError(f"a batch cannot be uncompressed: {error}") from error


def compressed(codec: int, body: bytes) -> bytes:
    """`body` as a producer with that compression would send it."""
    if codec == NONE:
        return body
    if codec == GZIP:
        packer = zlib.compressobj(wbits=GZIP_FORMAT)
        return packer.compress(body) + packer.flush()
    import cramjam

    if codec == SNAPPY:
        blocks = (body[at : at + SNAPPY_BLOCK] for at in range(0, len(body), SNAPPY_BLOCK))
        packed = (bytes(cramjam.snappy.compress_raw(block)) for block in blocks)
        return XERIAL_HEAD + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    return bytes(cramjam.lz4.compress(body) if codec == LZ4 else cramjam.zstd.compress(body))


def _gunzip(body: Buffer) -> Generator[None, None, bytes]:
    unpacker, parts, size = zlib.decompressobj(GZIP_FORMAT), list[bytes](), 0
    left: Buffer = body
    while not unpacker.eof:
        try:
            part = unpacker.decompress(left, PORTION)
        except zlib.error as error:
            raise ValueError(f"a batch cannot be uncompressed: {error}") from error
        left, size = unpacker.unconsumed_tail, size + len(part)
        if not part and not unpacker.eof:
            raise ValueError("a compressed batch is cut off")
        if size > MOST_UNPACKED:
            raise _too_large()
        parts.append(part)
        if size >= PORTION:
            yield
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _into(codec: Any, body: Buffer, refused: type[Exception]) -> bytes:
    """Into buffers of growing size: the format does not always say how much there is."""
    size = max(64 << 10, 8 * len(body))
    while True:
        unpacked = bytearray(min(size, MOST_UNPACKED))
        try:
            return bytes(memoryview(unpacked)[: codec.decompress_into(bytes(body), unpacked)])
        except refused as error:
            if "whole buffer" not in str(error):
                raise
            if size >= MOST_UNPACKED:
                raise _too_large() from error
        size *= 4


def _snappy(body: bytes, snappy: Any) -> bytes:
    if not body.startswith(XERIAL):
        return _block(body, MOST_UNPACKED, snappy)
    out, at, left = [], len(XERIAL_HEAD), MOST_UNPACKED
    while at + 4 <= len(body):
        size = struct.unpack_from(">i", body, at)[0]
        if not 0 < size <= len(body) - at - 4:
            raise ValueError("a block of snappy is cut off")
        out.append(_block(body[at + 4 : at + 4 + size], left, snappy))
        left -= len(out[-1])
        at += 4 + size
    return b"".join(out)


def _block(block: bytes, most: int, snappy: Any) -> bytes:
    if snappy.decompress_raw_len(block) > most:
        raise _too_large()
    return bytes(snappy.decompress_raw(block))


def _too_large() -> ValueError:
    return ValueError(f"a batch has more than {MOST_UNPACKED} bytes when uncompressed")

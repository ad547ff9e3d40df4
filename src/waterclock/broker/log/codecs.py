"""The compressions of record batches.

Rule 1: what cannot be uncompressed, or would become larger than MOST_UNPACKED, is a ValueError: a few bytes can stand for
    gigabytes, and the sender of a batch chooses them.
Source: compressions by the package cramjam, gzip by the standard library; snappy in the framing of Java's library.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from waterclock.broker.buffers import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MOST_UNPACKED: Final = 128 << 20
GZIP_FORMAT: Final = 31  # zlib's number for it
XERIAL: Final = b"\x82SNAPPY\0"  # the framing that Java's library puts around snappy
XERIAL_HEAD: Final = XERIAL + struct.pack(">ii", 1, 1)
SNAPPY_BLOCK: Final = 32 << 10


def uncompressed(codec: int, body: Buffer) -> bytes:
    """What was compressed; ValueError if it cannot be said.

    >>> uncompressed(GZIP, compressed(GZIP, b"records"))
    b'records'
    """
    if codec == NONE:
        return bytes(body)
    if codec == GZIP:
        return _gunzip(body)
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


def _gunzip(body: Buffer) -> bytes:
    unpacker = zlib.decompressobj(GZIP_FORMAT)
    try:
        data = unpacker.decompress(body, MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"a batch cannot be uncompressed: {error}") from error
    if not unpacker.eof:
        raise _too_large() if len(data) == MOST_UNPACKED else ValueError("a compressed batch is cut off")
    return data


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

"""DECIMAL out of a row image: nine digits in four bytes, fewer in fewer, big end first, the sign in the first bit.

Every digit is kept, the zeros at the end too: DECIMAL(10,4) 12.5 is 12.5000, as SELECT shows it.
"""

from __future__ import annotations

from itertools import pairwise

from waterclock.cdc.mysql.temporal import Reader

_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # for so many digits


def decimals(precision: int, scale: int) -> Reader:
    """A reader of DECIMAL(precision, scale)."""
    before, after = _groups(precision - scale, leading=True), _groups(scale, leading=False)
    size = sum(_BYTES[digits] for digits in before + after)
    whole, fraction = _cuts(before, 0), _cuts(after, sum(_BYTES[digits] for digits in before))

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = bytearray(data[at : at + size])
        sign = "" if raw[0] & 0x80 else "-"
        if sign:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        raw[0] ^= 0x80
        number = _digits(raw, whole).lstrip("0") or "0"
        return f"{sign}{number}.{_digits(raw, fraction)}" if scale else sign + number, at + size

    return read


def _groups(digits: int, leading: bool) -> list[int]:
    nines, rest = [9] * (digits // 9), [digits % 9] if digits % 9 else []
    return rest + nines if leading else nines + rest


def _cuts(groups: list[int], start: int) -> list[tuple[int, int, int]]:
    """(first byte, byte after the last, digits) of every group."""
    ends = [start]
    for digits in groups:
        ends.append(ends[-1] + _BYTES[digits])
    return [(low, high, digits) for (low, high), digits in zip(pairwise(ends), groups, strict=True)]


def _digits(raw: bytearray, cuts: list[tuple[int, int, int]]) -> str:
    return "".join([f"{int.from_bytes(raw[low:high], 'big'):0{digits}d}" for low, high, digits in cuts])

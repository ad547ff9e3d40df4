"""Times as people write them: 250ms, 1h30m; inside they are whole milliseconds."""

from __future__ import annotations

import re
from typing import Final

from waterclock.errors import UsageError

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(text: str) -> int:
    """Milliseconds in a text such as 250ms, 1s, 1h30m or 1500 (ms); `UsageError` for anything else.

    >>> parse_duration("1m30s"), parse_duration("250")
    (90000, 250)
    """
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    parts = re.findall(r"([0-9]+)(ms|[smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{text!r} is no duration: write whole numbers with ms, s, m, h or d, such as 250ms or 1h30m")
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)


def show_duration(ms: int) -> str:
    """The shortest exact way to say it.

    >>> show_duration(90_000), show_duration(-558), show_duration(3_661_442), show_duration(0)
    ('1m30s', '-558ms', '1h1m1.442s', '0s')
    """
    if abs(ms) < 1_000:
        return f"{ms}ms" if ms else "0s"
    rest, text = abs(ms), "-" if ms < 0 else ""
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text + (f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s" if rest else "")

"""How a number, or a time, is said to a person."""

_LONG_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}


def counted(number: int, what: str) -> str:
    """A number and what it counts: `what` is one of them.

    >>> counted(1, "event"), counted(1_234, "batch"), counted(0, "record of the input")
    ('1 event', '1,234 batches', '0 records of the input')
    """
    noun, space, rest = what.partition(" ")
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}{space}{rest}"


def show_duration(ms: int) -> str:
    """The shortest exact way to say it.

    >>> show_duration(90_000), show_duration(-558), show_duration(3_661_442), show_duration(0)
    ('1m30s', '-558ms', '1h1m1.442s', '0s')
    """
    if abs(ms) < 1_000:
        return f"{ms}ms" if ms else "0s"
    rest, text = abs(ms), "-" if ms < 0 else ""
    for unit, unit_ms in _LONG_MS.items():
        count, rest = divmod(rest, unit_ms)
        text += f"{count}{unit}" if count else ""
    return text + (f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s" if rest else "")

"""Regular expressions that clients send: RE2's, as with Apache Kafka.

Python's own may try for ever over one short name, and everybody would wait for the loop meanwhile. RE2 takes as long as
the pattern is, times the name.

Rule 1: a pattern matches a whole name.
Rule 2: RE2 is imported with the first pattern: most brokers never see one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

LONGEST: Final = 32_767  # characters; a string of Kafka's protocol was never longer before its flexible versions
MOST_BYTES: Final = 512 << 10  # for one pattern when it is compiled; RE2's module keeps the last 128


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a name matches `pattern`. ValueError if RE2 refuses it, with RE2's reason.

    >>> matches = matcher("orders-.*")
    >>> matches("orders-1"), matches("my-orders-1")
    (True, False)
    """
    import re2

    if len(pattern) > LONGEST:
        raise ValueError(f"{len(pattern)} characters, and {LONGEST} are allowed")
    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        why = error.args[0] if error.args else ""
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
    return lambda name: compiled.fullmatch(name) is not None


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.never_capture = True
    options.log_errors = False
    return options

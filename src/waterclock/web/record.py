"""A command's frozen statistics as JSON: what a console reads, whatever command it is.

    {"command": "broker", "version": "0.1.0", "statistics": {...}}

Rule 1: a dataclass becomes an object of its fields, a mapping one of its keys as text, a tuple a list.
Rule 2: what is not known is null. So are NaN and infinity, which JSON does not have.
Rule 3: what JSON has no form for becomes its text: no record is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from waterclock import __version__


def to_json(command: str, statistics: object) -> str:
    """The record of `command`, on one line.

    >>> to_json("run", {"rate": float("nan")}).endswith(', "statistics": {"rate": null}}')
    True
    """
    return json.dumps({"command": command, "version": __version__, "statistics": plain(statistics)}, allow_nan=False)


def plain(value: object) -> Any:
    """`value` in dicts, lists, texts, numbers and None.

    >>> plain({("orders", 0): (1, 2.5, float("inf"), None)})
    {"('orders', 0)": [1, 2.5, None, None]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)

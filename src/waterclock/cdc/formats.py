"""The change formats by the word that a pipeline's file uses for them: `maxwell`, `debezium`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from waterclock.cdc import debezium, maxwell
from waterclock.cdc.change import Change, Met

FORMATS = ("maxwell", "debezium")
ReadChanges = Callable[[Met], Iterator[Change]]


def reader_of(word: str, types: Mapping[str, str] | None = None) -> ReadChanges:
    """What reads the messages of a change topic; ValueError for a word that is no format.

    >>> list(reader_of("maxwell")(Met(b"{}", None, 0)))
    []
    """
    if word not in FORMATS:
        raise ValueError(f"a change format must be one of {', '.join(FORMATS)}, got {word!r}")
    return maxwell.changes if word == "maxwell" else partial(debezium.changes, types=types)

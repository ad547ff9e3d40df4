"""The change formats by the word that a pipeline's file uses for them: `maxwell`, `debezium`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from waterclock.changes import debezium, maxwell
from waterclock.changes.row_change import Message, RowChange
from waterclock.errors import Unreadable

FORMATS = ("maxwell", "debezium")
ReadChanges = Callable[[Message], Iterator[RowChange]]


def reader_of(word: str, types: Mapping[str, str] | None = None) -> ReadChanges:
    """What reads the messages of a change topic; ValueError for a word that is no format, or no type.

    >>> list(reader_of("maxwell")(Message(b"{}", None, 0)))
    []
    """
    if word not in FORMATS:
        raise ValueError(f"a change format must be one of {', '.join(FORMATS)}, got {word!r}")
    debezium.check_types(types or {})
    return partial(_guarded, maxwell.changes if word == "maxwell" else partial(debezium.changes, types=types))


def _guarded(read: ReadChanges, message: Message) -> Iterator[RowChange]:
    """What a writer that is none of the two puts into a message is refused, whatever it is."""
    try:
        yield from read(message)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Unreadable(
            f"The message at offset {message.offset} is not as its format has it ({type(error).__name__}: {error}). Is it "
            "another format?"
        ) from None

"""The forms of a row change: ours and Maxwell's, written and read; Debezium's, read. `reader_of` chooses one by the word
that a pipeline's file uses for it: `maxwell`, `debezium`.

row_change.py   `RowChange`: one row as it is to be, or to go; what every form is read into
maxwell.py      `MaxwellMessage`: what a capture writes, one message for each changed row; and Maxwell's messages read
debezium.py     Debezium's messages read
packed.py       row changes as an Arrow table, which a sink applies
table_schema.py `TableSchema`: how a table was from a position on, and the history of all of them

Rule 1: importing this needs nothing outside the standard library; packed.py alone needs PyArrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from waterclock.changes import debezium, maxwell
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.row_change import Json, Message, RowChange
from waterclock.errors import Unreadable

__all__ = ["FORMATS", "Json", "MaxwellMessage", "Message", "ReadChanges", "RowChange", "reader_of"]
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

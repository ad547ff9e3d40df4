"""What a capture says to who started the command, in the words of a Python program: parameters in the place of options.

Rule 1: each option that a message of cdc names is in this table: a test looks.
"""

from __future__ import annotations

import re
from typing import Final

from waterclock.errors import WaterclockError

PARAMETERS: Final = {
    "--from-here": "from_here=True",
    "--from now": 'begin="now"',
    "--from": "begin",
    "--new-tables from-now": 'new_tables="from-now"',
    "--new-tables": "new_tables",
    "--snapshot when-needed": 'snapshot="when-needed"',
    "--snapshot never": 'snapshot="never"',
    "--snapshot-rate": "snapshot_rate",
    "--snapshot": "snapshot",
    "--tables": "tables=[...]",
    "--skip-to": "skip_to",
    "--skip": "skip",
    "--dead-letters TOPIC": "dead_letters=True",
    "--name": "position",
    "--password-file": "password=...",
    "--type": "types={column: type}",
    "--as-published": "as_published=True",
    "--publication": "publication",
    "--slot": "slot",
    "--server-id": "server_id",
    "--tls": "tls=True",
    "--queries": "queries=True",
    "--partial-rows": "partial_rows=True",
    "half in Kafka": "half committed",
    "Kafka has the changes": "The changes are committed",
    "and Kafka has": "and the position says that the caller has",
}
_VALUED = re.compile(r"--(skip-to|skip|tables) ([^\s-][^\s;,]*?)([.:;,]?(?=\s|$))")
_WORD = re.compile("|".join(map(re.escape, sorted(PARAMETERS, key=len, reverse=True))))


def in_python(message: str) -> str:
    """The message with parameters.

    >>> in_python("To begin without them, and copy them by hand: --from-here")
    'To begin without them, and copy them by hand: from_here=True'
    >>> in_python("To go on without the transaction: --skip 0-1-7; or with this record put aside: --dead-letters TOPIC.")
    "To go on without the transaction: skip=['0-1-7']; or with this record put aside: dead_letters=True."
    """
    return _WORD.sub(lambda found: PARAMETERS[found[0]], _VALUED.sub(_valued, message))


def _valued(found: re.Match[str]) -> str:
    value = f"[{found[2]!r}]" if found[1] in ("skip", "tables") else repr(found[2])
    return f"{found[1].replace('-', '_')}={value}{found[3]}"


def reworded(error: WaterclockError) -> WaterclockError:
    """The same error, its message in the words of this door."""
    said = type(error)(in_python(str(error)))
    for note in getattr(error, "__notes__", ()):
        said.add_note(note)
    return said

"""What of a log cannot be read, and what is done about it: the capture stops, or it puts the record aside and goes on.

    stop        the default: nothing is passed over without the user's word; the message names the ways on
    put_aside   the record as it came goes to a topic of its own, in the same Kafka transaction as what stands beside it

Rule 1: only what is of a wanted table, or may be, comes here.
Rule 2: a record that is put aside takes a number among its transaction's changes: of two that stand in a topic one sees
        that something between them is missing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple

from waterclock.changes.maxwell_message import quoted
from waterclock.errors import Unreadable


class DeadLetter(NamedTuple):
    """A record of the log that cannot be read.

    `gtid`, `ts` and `xoffset` tell where it stands, as those of a change do; `kind` what it is in the words of its log;
    `record` its bytes as they came. `database` and `table` are empty if the record is of no table, or of several.
    `data` is what could be read of a row: columns as JSON text, bytes of no known text as base64.
    """

    gtid: str
    ts: int
    xoffset: int
    kind: str
    reason: str
    record: bytes
    database: str = ""
    table: str = ""
    data: Mapping[str, str] | None = None

    def as_key(self) -> bytes:
        """The Kafka message's key: all of a table are in one partition."""
        return f'{{"database":{quoted(self.database)},"table":{quoted(self.table)}}}'.encode()

    def as_json(self) -> bytes:
        """The Kafka message's value.

        >>> DeadLetter("0-1-7", 1700000000, 2, "message U", "it is odd.", b"U").as_json().decode()[:57]
        '{"gtid": "0-1-7", "ts": 1700000000, "xoffset": 2, "kind":'
        """
        fields = {**self._asdict(), "record": b64encode(self.record).decode()}
        del fields["data"]  # whose texts are JSON already, with all their digits
        data = "null"
        if self.data is not None:
            data = "{" + ",".join([f"{quoted(name)}:{text}" for name, text in self.data.items()]) + "}"
        text = json.dumps(fields, ensure_ascii=False)
        return f'{text[:-1]}, "data": {data}}}'.encode("utf-8", "backslashreplace")


Refusal = Callable[[DeadLetter], DeadLetter]


def stop(letter: DeadLetter) -> DeadLetter:
    """Raise Unreadable, with the ways past the record; what a capture does unless the user says otherwise."""
    whole = f"without the transaction, and mend the target by hand: --skip {letter.gtid}; or "
    raise Unreadable(
        f"{letter.reason} To go on {whole if letter.gtid else ''}with this record alone put aside: --dead-letters TOPIC."
    )


def put_aside(letter: DeadLetter) -> DeadLetter:
    """The letter itself, which goes to the topic of dead letters."""
    return letter

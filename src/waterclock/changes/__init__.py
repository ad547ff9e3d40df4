"""The forms of a row change: ours and Maxwell's, written and read; Debezium's, read.

row_change.py       `RowChange`: one row as it is to be, or to go; what every form is read into
maxwell_message.py  `MaxwellMessage`: what a capture writes, one message for each changed row
maxwell.py          Maxwell's messages read, ours among them
debezium.py         Debezium's messages read
formats.py          which of them a word of a pipeline's file stands for
packed.py           row changes as an Arrow table, which a sink applies

Rule 1: importing this needs nothing outside the standard library; packed.py alone needs PyArrow.
"""

from waterclock.changes.formats import FORMATS, reader_of
from waterclock.changes.maxwell_message import MaxwellMessage
from waterclock.changes.row_change import Json, Message, RowChange

__all__ = ["FORMATS", "Json", "MaxwellMessage", "Message", "RowChange", "reader_of"]

"""Change data capture: what a database commits, in order, exactly once into Kafka; and change topics read again.

Rule 1: importing this needs nothing outside the standard library; the command's own modules need the extra `cdc`.
"""

from waterclock.changes.change import Change, Met
from waterclock.changes.events import RowChange
from waterclock.changes.formats import FORMATS, reader_of

__all__ = ["FORMATS", "Change", "Met", "RowChange", "reader_of"]

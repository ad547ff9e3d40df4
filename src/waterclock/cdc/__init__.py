"""Change data capture: what a database commits, in order, exactly once into Kafka, or into a program's own hands.

Rule 1: importing this needs nothing outside the standard library; the command's own modules need the extra `cdc`.
Rule 2: the names of the Python door (`changes` and what belongs to it) are imported on first use.
"""

from typing import TYPE_CHECKING

from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.cdc.door.async_stream import AsyncChangeStream
    from waterclock.cdc.door.batch import Batch, Change
    from waterclock.cdc.door.store import FilePosition, PositionStore, SqlPosition
    from waterclock.cdc.door.stream import ChangeStream, changes

__all__ = [
    "AsyncChangeStream",
    "Batch",
    "Change",
    "ChangeStream",
    "FilePosition",
    "PositionStore",
    "SqlPosition",
    "changes",
]

_HOME = {
    "AsyncChangeStream": "waterclock.cdc.door.async_stream",
    "Batch": "waterclock.cdc.door.batch",
    "Change": "waterclock.cdc.door.batch",
    "ChangeStream": "waterclock.cdc.door.stream",
    "FilePosition": "waterclock.cdc.door.store",
    "PositionStore": "waterclock.cdc.door.store",
    "SqlPosition": "waterclock.cdc.door.store",
    "changes": "waterclock.cdc.door.stream",
}

__getattr__ = first_use(__name__, _HOME)

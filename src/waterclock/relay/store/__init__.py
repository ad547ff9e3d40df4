"""The local files of an input partition: a cache of what is pending. The log is the truth."""

from waterclock.relay.store.files import NO_FILE_LEFT, DiskRefused, StoreDamaged
from waterclock.relay.store.folder import Identity, say_unread
from waterclock.relay.store.ids import Found
from waterclock.relay.store.origins import State
from waterclock.relay.store.rows import ROW, Payload, handed_on, pack, rows_of, unpack
from waterclock.relay.store.spans import Span, SpanLevel
from waterclock.relay.store.store import PartitionStore

__all__ = [
    "NO_FILE_LEFT",
    "ROW",
    "DiskRefused",
    "Found",
    "Identity",
    "PartitionStore",
    "Payload",
    "Span",
    "SpanLevel",
    "State",
    "StoreDamaged",
    "handed_on",
    "pack",
    "rows_of",
    "say_unread",
    "unpack",
]

"""Logs onto the disk, in whichever thread.

Rule 1: a flush that failed is never tried again. The cache may then be clean and the disk not: the process ends before
    it says anything more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from waterclock.outside import os

if TYPE_CHECKING:
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.log.segment import Segment


def flush_files(files: Iterable[tuple[Segment, int]]) -> None:
    """Put what was appended to these segments onto the disk. Any thread may do that; rule 1 holds."""
    try:
        for segment, _ in files:
            segment.flush()
    except OSError as error:
        flush_failed(error)


def make_durable(partition: Partition) -> None:
    """Put all that was appended to a partition onto the disk now, and have it know."""
    files = partition.unflushed()
    flush_files(files)
    partition.flushed(partition.end, files)


def close_durably(partition: Partition) -> None:
    """Put all of it onto the disk, and keep what is known of its producers for the next start: the end of a partition."""
    make_durable(partition)
    if partition.snapped < partition.end and (partition.producers.known or partition.aborted):
        partition.take_snapshot()


def flush_failed(error: Exception) -> NoReturn:
    """End the process (rule 1)."""
    os.write(2, f"waterclock broker: a flush failed, the process ends: {error}\n".encode())
    os._exit(1)

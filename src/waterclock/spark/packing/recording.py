"""What buckets were given, written down batch by batch while their state is carried over (rescaling/live.py).

    waterclock.recording            in the checkpoint: the folder of the records, as long as they are wanted
    000000000012-7                  what the bucket with the label 7 was given in batch 12
    000000000012                    batch 12 is in the sink: Spark's watermark in it, and what it counted

Rule 1: a record is written whole, and the same again if its batch is run again.
Rule 2: what cannot be written down fails no batch: the result frame says so, and the carrying over ends.
Rule 3: the flag is set before a batch's tasks begin, so a batch is recorded whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgpack
from pyspark import TaskContext

FLAG = "waterclock.recording"
_BATCH = "streaming.sql.batchId"  # Spark's own name


@dataclass(frozen=True, slots=True)
class BatchNote:
    """A batch that is in the sink: Spark's watermark in it, in milliseconds, and the changes of the counters."""

    watermark_ms: int
    counters: Mapping[str, int]


class Recorder:
    """The records of one task; nothing is written if nobody wants any."""

    def __init__(self, flag: str | None) -> None:
        """`flag` is the path of the flag."""
        self._folder: Path | None = None
        if flag is not None:
            with suppress(FileNotFoundError):
                self._folder = Path(Path(flag).read_text())

    def take(self, label: int, given: Iterable[bytes]) -> str:
        """Write down what the bucket is given; why that cannot be, or an empty text."""
        context = None if self._folder is None else TaskContext.get()
        if self._folder is None or context is None:
            return ""
        name = f"{int(context.getLocalProperty(_BATCH)):012d}-{label}"
        try:
            _write(self._folder / name, msgpack.packb(list(given)))
        except OSError as error:
            return f"{self._folder}: {error.strerror or error}"
        return ""


def note(folder: Path, batch_id: int, noted: BatchNote) -> None:
    """Write down that a batch is in the sink."""
    _write(folder / f"{batch_id:012d}", json.dumps([noted.watermark_ms, dict(noted.counters)]).encode())


def noted(folder: Path, batch_id: int) -> BatchNote | None:
    """What is noted of a batch; None if it is not in the sink yet."""
    with suppress(FileNotFoundError):
        return BatchNote(*json.loads((folder / f"{batch_id:012d}").read_bytes()))
    return None


def recorded(folder: Path, batch_id: int, labels: Iterable[int]) -> Iterator[bytes]:
    """The frames of events and clocks that the buckets were given in a batch, one bucket after the other."""
    for label in labels:
        with suppress(FileNotFoundError):
            yield from msgpack.unpackb((folder / f"{batch_id:012d}-{label}").read_bytes())


def _write(file: Path, data: bytes) -> None:
    half = file.with_name(f".{file.name}")
    half.write_bytes(data)
    half.replace(file)

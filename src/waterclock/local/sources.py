"""Where rows come from: a batch of input, and the same batch once more.

Rule 1: `take` decides how far a batch goes; `again` reads what a batch is known to have read, and gives the same rows in
        the same order: by topic, partition, offset; by file in the order in which they were taken.
Rule 2: what has to be read once more must still be there, and be the same: of files, the name and the size are recorded. A
        file that is gone or changed is refused by its name, for the state would be another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import StateMismatch, UsageError
from waterclock.local.record import Clock, Place
from waterclock.rules.model import Rules
from waterclock.sinks import RecordingSink
from waterclock.streaming.files.folder import check_source, files_in, seen
from waterclock.streaming.files.reading import read_file
from waterclock.streaming.layout import Block, Csv, Layout, dead_file, end_of
from waterclock.streaming.places.place import is_remote
from waterclock.streaming.toml.config import Files
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.steps import Outlet

_GONE = "it was moved or deleted before it was read: put it back under another name"
PLAIN = Csv()
_MS = 1000  # Spark counts its watermark in milliseconds, and so do files here


@dataclass(slots=True)
class Input:
    """A batch: `place` is where it ended, `clock` the watermark that each partition allows now; one that is full left
    something behind it. `anew`: the source's identity, if it is another one since the batch before."""

    place: Place
    clock: Clock
    rows: list[pa.Table] = field(default_factory=list)
    dead: list[pa.Table] = field(default_factory=list)
    counters: Mapping[str, int] = field(default_factory=dict)
    is_full: bool = False
    anew: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> dict[str, int]:
        """How much it brought."""
        return {**self.counters, "rows": sum(table.num_rows for table in self.rows)}


class Source(ABC):
    """What a pipeline reads. `take` is called by one thread."""

    unit: str  # of `progress`
    where: str  # it is, for people
    idle_s: float  # how long a live run waits that found nothing
    refuses_another = True  # one that was made anew under its names
    forgets = True  # of a batch that is in every snapshot, whether its record may go

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of an event."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What the state depends on, beside the rules and the watermark's delay."""

    @abstractmethod
    def check(self) -> None:
        """Raise UsageError or EnvironmentMissing for what cannot be read."""

    @abstractmethod
    def first(self) -> Place:
        """Where the first batch begins."""

    @abstractmethod
    def begin(self, places: Sequence[Place], live: bool) -> None:
        """`take` goes on behind these, the places of all records; not `live`, up to where the source ends now."""

    @abstractmethod
    def take(self) -> Input | None:
        """The next batch; None if there is nothing by now."""

    @abstractmethod
    def again(self, start: Place, place: Place) -> Input:
        """The batch that led from one place to the other; StateMismatch or WaterclockError if it cannot be had."""

    @abstractmethod
    def behind(self, place: Place) -> Mapping[str, int]:
        """How much there is behind `place`, by partition."""

    def identity(self) -> Mapping[str, str]:
        """What it is, beside its names: one that was made anew under them is another."""
        return {}

    def hurry(self) -> None:  # noqa: B027
        """What does not come is waited for no longer, till it begins again; from another thread."""

    def close(self) -> None:  # noqa: B027
        """End of use."""


class FileSource(Source):
    """New files of a folder, the oldest first. A place is what every batch up to there took: [name, size] of each."""

    unit, idle_s = "files", 0.1
    forgets = False  # which files were taken, the records say

    def __init__(self, files: Files, rules: Rules, delay_us: int, csv: Csv = PLAIN) -> None:
        self._files, self._delay_us = files, delay_us
        self._folder = Path(str(files.path))
        self.where = str(self._folder)
        self._layout = Layout(files.format, dict(files.columns), rules, csv)
        self._taken: dict[str, int] = {}

    def schema(self) -> pa.Schema:
        return self._layout.schema()

    def settings(self) -> Mapping[str, Any]:
        format_, csv = self._files.format, self._layout.csv
        written = {} if csv == PLAIN else {"csv": [csv.separator, csv.has_header, csv.pattern]}
        return {"columns": dict(self._files.columns), "format": format_, "path": str(self._folder), **written}

    def check(self) -> None:
        check_source(self._folder)

    def first(self) -> Place:
        return {"files": []}

    def begin(self, places: Sequence[Place], live: bool) -> None:
        for place in places:
            self._taken.update(dict(place["files"]))

    def take(self) -> Input | None:
        new, most = self._new(), self._files.files_per_batch
        if not (names := new[:most]):
            return None
        made = self._input({name: _size(self._folder / name) for name in names})
        self._taken.update(dict(made.place["files"]))
        made.is_full = len(new) > most
        return made

    def again(self, start: Place, place: Place) -> Input:
        known: dict[str, int] = dict(place["files"])
        made = self._input({name: None if size < 0 else _size(self._folder / name) for name, size in known.items()})
        for name, found in made.place["files"]:
            if found != known[name]:
                raise StateMismatch(
                    f"the file {self._folder / name} is {'gone' if found < 0 else 'another one'} since it was read, "
                    f"and its events are needed once more: put it back as it was ({known[name]} bytes), or start over "
                    "with --fresh"
                )
        return made

    def behind(self, place: Place) -> Mapping[str, int]:
        return {"": len(self._new())}

    def _new(self) -> list[str]:
        found = []
        for name in {path.name for path in files_in(self._folder)} - self._taken.keys():
            with suppress(FileNotFoundError):  # moved away meanwhile
                found.append((seen(self._folder / name).st_mtime_ns // 1_000_000, name))
        return [name for _, name in sorted(found)]

    def _input(self, sizes: Mapping[str, int | None]) -> Input:
        """The batch of these files; None is the size of one that was gone when its turn came."""
        taken: list[list[Any]] = []
        made = Input({"files": taken}, {})
        dead = heartbeats = 0
        rules, latest = self._layout.rules, None
        for name, known in sizes.items():
            size, blocks = self._read(name, known)
            taken.append([name, size])
            for block in blocks:
                keys = block.rows.column(rules.key)
                keyed = block.rows.filter(pc.is_valid(keys)) if keys.null_count else block.rows
                heartbeats += block.rows.num_rows - keyed.num_rows
                made.rows.append(keyed)
                made.dead.append(block.dead)
                dead += block.dead.num_rows
                us = pc.max(block.rows.column(rules.time).cast(pa.int64())).as_py()
                latest = us if latest is None or (us is not None and us > latest) else latest
        made.counters = {"files": len(sizes), "dead_letters": dead, "heartbeats": heartbeats}
        made.clock = {"files": watermark_of_files(latest, self._delay_us)}
        return made

    def _read(self, name: str, size: int | None) -> tuple[int, Iterable[Block]]:
        """How large a file is, and its blocks; -1 and a dead letter for one that is gone, be it since it was looked at."""
        path = f"file:{self._folder / name}"
        if size is not None:
            blocks = read_file(path, self._layout)
            with suppress(FileNotFoundError):
                return size, chain(list(islice(blocks, 1)), blocks)
        return -1, [dead_file(path, self._layout, _GONE)]


def watermark_of_files(latest_us: int | None, delay_us: int) -> int | None:
    """The watermark that files allow whose largest time is `latest_us`; None if no time of them is known."""
    return None if latest_us is None else end_of(latest_us) // _MS * _MS - delay_us


def _size(path: Path) -> int | None:
    try:
        return seen(path).st_size
    except FileNotFoundError:
        return None


def refuse_spark(source: Any, rules: Rules | None, outlets: Iterable[Outlet[Any]], checkpoint: object) -> Rules:
    """The rules; UsageError for what only Spark can do, by its name. A sink may be one, or a record that makes it."""
    places = (checkpoint, getattr(source, "path", None))
    named = {
        "a source of Spark's readers": isinstance(source, Reader) and source.format != "csv",
        "'query' and 'transform' in [source]": getattr(source, "step", None) is not None,
        'way = "connector"': getattr(source, "way", "python") == "connector",
        "changes of tables": rules is None,
        "a place behind a URI": any(map(is_remote, places)),
    }
    for outlet in outlets:
        sink = outlet.sink
        if outlet.step is not None:
            named["'query' and 'transform' in [sink]"] = True
        if not getattr(sink, "records_inputs", isinstance(sink, RecordingSink)):
            named[f"{getattr(sink, 'kind', type(sink).__name__)} as a sink"] = True
    if wrong := [name for name, is_so in named.items() if is_so]:
        raise UsageError(f'{wrong[0]} needs Spark: write engine = "spark" in [pipeline], or leave it out')
    assert rules is not None, "refused"
    return rules

"""format = "delta": a table of Delta Lake. The reference is made of this.

path         the table's folder, or a URL of an object store without a password; it is made. PATH_dead_letters and
             PATH_batches stand beside it. Of changes: the folder of the mirrored tables, where table
             (by default "changes") names the sink's own. None of ? % * [ ] ^ |, no hash, no backslash
written_by   who writes the files of results; "executors" is for one sink, without query, transform and takes,
             and not for changes of tables
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import Destination, Findings, SinkTable, unwritable
from waterclock.sinks.files import DRIVER, writer_of
from waterclock.sinks.mirrors import Replica
from waterclock.sinks.postgres.destination import postgres_name

_NOT_IN_DELTA = " ,;{}()\n\t="  # in a column's name; without it, every engine can read the table
_NOT_IN_A_LOCATION = "?#%*[]^|\\"  # the package deltalake takes them for parts of a URL, and dies of some
_FOLDER_BYTES = 255  # of a name in most file systems
# in a table's folder: what writers of Delta call their files of data, what their care leaves, and folders of their own
_OWN_FILE = re.compile(r"part-.+\.parquet|deletion_vector_.+\.bin|\..+\.crc")
_OWN_FOLDER = re.compile(r"_delta_log|_delta_index|_change_data|_symlink_format_manifest")


@dataclass(frozen=True, slots=True)
class DeltaLakeTable(Destination):
    """A table of Delta Lake; `path` is None if it lies behind a URL."""

    kind = "a table of Delta Lake"
    keys = ("path", "written_by")
    takes_changes = True

    location: str
    path: Path | None
    mirror: Replica | None = None
    written_by: str = DRIVER

    @classmethod
    def from_table(cls, given: SinkTable) -> DeltaLakeTable:
        """See `Destination`. Of changes, `path` is the folder of the mirrored tables, and `table` names the sink's own."""
        mirror = Replica() if given.changes else None
        path, by = given.text("path"), writer_of(given)
        own = f"/{postgres_name('table', given.text('table', 'changes'))}" if given.changes else ""
        if "://" in path:
            return cls(table_location(path.rstrip("/") + own), None, mirror, by)
        location = table_location(f"{given.place('path', path)}{own}")
        return cls(location, Path(location), mirror, by)

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the table {self.location}"

    @property
    def alone(self) -> str:
        """See `Destination`."""
        return f"the source's tables in {self.location.rpartition('/')[0]}" if self.mirror else self.place

    def sink(self) -> Sink:
        """See `Destination`."""
        from waterclock.sinks.delta.delta import DeltaSink  # its package is that of the extra `delta`

        return DeltaSink(self.location, mirror=self.mirror, written_by=self.written_by)

    def look(self, results: pa.Schema | None, found: Findings) -> None:
        """See `Destination`."""
        if self.path is None:
            found.unchecked.append(f"{self.place}: whether it is there, and its columns: it lies behind a URL")
        else:
            found.faults.extend(unwritable(self.path, self.place))
            Destination.look(self, results, found)


def table_location(location: str) -> str:
    """`location` of a table, a path or a URL, without a slash at its end; UsageError if it is none, or holds a secret.

    >>> table_location("out/orders/"), table_location("s3://lake/orders")
    ('out/orders', 's3://lake/orders')
    """
    name = location.rstrip("/").rpartition("/")[2]
    if not location.isprintable() or not name.strip(". ") or location.rstrip("/").endswith(":"):
        raise UsageError(f"the sink's table must have a path or a URL with a name at its end, got {location!r}")
    if set(location) & set(_NOT_IN_A_LOCATION):
        raise UsageError(
            f"the sink's table {location!r} must be named without any of {' '.join(_NOT_IN_A_LOCATION)}, its folders too"
        )
    if "://" in location and "@" in location.split("://", 1)[1].split("/", 1)[0]:
        raise UsageError(
            "the sink's URL holds a user or a password: leave them out, and set what the store asks for in the "
            "environment (AWS_ACCESS_KEY_ID and the like)"
        )
    return location.rstrip("/")


def delta_column(name: str) -> str:
    """`name` of a column; UsageError if Delta Lake takes none of that name.

    >>> delta_column("event_n")
    'event_n'
    """
    return fitting_delta_column(name, f"the column {name!r}", "Rename it in [source.columns]")


def fitting_delta_column(name: str, what: str, remedy: str) -> str:
    """`name`, which errors call `what`; UsageError with the remedy if Delta Lake has no such column."""
    if set(name) & set(_NOT_IN_DELTA):
        raise UsageError(
            f"{what} cannot be in a table of Delta Lake: no spaces, no , ; = and no brackets ( ) {{ }}. {remedy}"
        )
    return name


def fitting_delta_folder(name: str, what: str, remedy: str) -> str:
    """`name` of a folder, which errors call `what`; UsageError with the remedy if no table of Delta Lake lies there.

    >>> fitting_delta_folder("shop", "the table 'shop.item'", "rename it")
    'shop'
    """
    is_plain = name.isprintable() and name.strip(". ") and not set(name) & set(_NOT_IN_A_LOCATION + "/")
    if not is_plain or len(name.encode()) > _FOLDER_BYTES:
        raise UsageError(f"{what} cannot be a folder of Delta Lake: {remedy}")
    return name


# What lies in a table's folder ---------------------------------------------------------------------------------


def refuse_other_things(place: Path) -> None:
    """Raise UsageError if there is something at `place`, where there is no table: it is neither filled nor removed."""
    if place.is_file() or (place.is_dir() and not all(map(_is_begun, place.iterdir()))):
        raise UsageError(
            f"{place} is no table of Delta Lake, so it is not removed or written to: name another path in [sink]"
        )


def _is_begun(path: Path) -> bool:
    """Whether `path` is all that a kill leaves of making a table: a log without a commit."""
    return path.name == "_delta_log" and path.is_dir() and not [*path.glob("*.json"), *path.glob("*.parquet")]


def remove_folder(folder: Path) -> None:
    """Take a table's folder away, if it is there. A kill in the midst leaves no table without its log, which would count as
    somebody else's: it has another name by then, and the next removal takes what is left of it. UsageError if what has
    that name holds other things."""
    going = folder.with_name(f"{folder.name}.waterclock-removed")
    if going.exists():
        refuse_others_inside(str(going), f"the table {str(going)!r}", "table_name=")
        shutil.rmtree(going)
    if folder.exists():
        folder.rename(going)
        shutil.rmtree(going)


def refuse_another_table_around(location: str) -> None:
    """Raise UsageError if a folder around is another table's: what lies in there unknown to it would go with it."""
    around = () if "://" in location else Path(location).absolute().parents
    if outer := [str(folder) for folder in around if (folder / "_delta_log").is_dir()]:
        raise UsageError(
            f"the sink's table {location!r} lies in the folder of another table of Delta Lake, {outer[0]}, and would go "
            "with it: name a path beside that one in [sink]"
        )


def refuse_others_inside(location: str, name: str, partitions: str | None) -> None:
    """Raise UsageError if the folder of the table `name` holds what no writer of Delta Lake puts there; `partitions`: the
    start of the names of its partitions, if it has some."""
    for path in sorted(Path(location).glob("*")):
        is_own = (_OWN_FOLDER if path.is_dir() else _OWN_FILE).fullmatch(path.name) is not None
        is_partition = partitions is not None and path.is_dir() and path.name.startswith(partitions)
        if not is_own and not is_partition:
            raise UsageError(
                f"{name} has other things in its folder ({path.name}, ...), so it is not removed: move them away, or name "
                "another path in [sink]"
            )

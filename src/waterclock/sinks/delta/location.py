"""Where a table of Delta Lake lies: a folder, with two more beside it.

Rule 1: a location is a path of this machine, or a URL. Behind a URL nothing is removed.
"""

from __future__ import annotations

from pathlib import Path

from waterclock.errors import UsageError
from waterclock.sinks.delta.destination import table_location
from waterclock.sinks.tables import BATCHES, DEAD_LETTERS


class TableLocation:
    """What the sinks of such tables have in common.

    >>> table = TableLocation("s3://lake/orders/")
    >>> table.path, table.place, table.describe()
    (None, 'the table s3://lake/orders', "the table 'orders' in s3://lake")
    """

    def __init__(self, location: str) -> None:
        self._location = table_location(location)

    @property
    def path(self) -> Path | None:
        """The folder of the table; None where it lies behind a URL."""
        return None if self._is_url else Path(self._location)

    @property
    def place(self) -> str:
        """Where the table is, in the words that a checkpoint keeps."""
        return f"the table {self._location}"

    def describe(self) -> str:
        """See `Sink`."""
        return self._name("")

    @property
    def _is_url(self) -> bool:
        return "://" in self._location

    def _at(self, end: str) -> str:
        """The location of the folder with this end of its name."""
        return self._location + end

    def _name(self, end: str) -> str:
        folder, _, name = self._at(end).rpartition("/")
        return f"the table {name!r} in {folder or '.'}"

    def _refuse_url(self) -> None:
        """UsageError where it would be removed behind a URL."""
        if self._is_url:
            raise UsageError(
                f"waterclock removes nothing behind a URL: remove {self._location}, and the same with {DEAD_LETTERS} and "
                f"{BATCHES} behind it, and the checkpoint; then start without --fresh"
            )

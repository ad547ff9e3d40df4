from collections.abc import Callable, Collection, Mapping

from waterclock.cdc.mysql.binlog import BinlogEvent
from waterclock.cdc.mysql.columns import BinlogColumn
from waterclock.cdc.mysql.values import Reader
from waterclock.changes._written import Form, Written

class ImagePlan:
    form: Form
    def __init__(
        self,
        database: str,
        table: str,
        key: tuple[str, ...],
        kinds: Mapping[str, str],
        columns: list[BinlogColumn],
        readers: list[Reader],
        hidden: Collection[str],
    ) -> None: ...
    def rows_of(
        self, body: bytes, second: bool, before: bool, after: bool
    ) -> list[tuple[Written | None, Written | None]] | None: ...
    def rows(
        self, data: bytes, at: int, before: bool, after: bool
    ) -> list[tuple[Written | None, Written | None]] | None: ...

def events_of(data: bytearray, at: int, checksums: bool) -> tuple[list[BinlogEvent], int]: ...
def passed(data: bytearray, at: int) -> tuple[int, int, bool]: ...

class SelectedPlan:
    form: Form
    def __init__(self, form: Form, columns: list[tuple[str, str, Callable[[bytes], str]]]) -> None: ...
    def rows(self, data: bytearray, end: int) -> tuple[list[Written], bytes]: ...

"""A sink whose executors write, and something befalls the first task that has written a file of results.

The task makes a file `mark` with its file's name before that: it befalls nobody again. All of this travels to the
executors as it stands here, for they have no tests to import; the `fate` too, where it stands in the driver's own file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import PartWriter, ResultFiles

Fate = Callable[[], None]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class FatedFiles:
    """Files of a batch, of which the first one is not told of before `fate` was called."""

    files: ResultFiles
    mark: str
    fate: Fate

    def begin(self, part: int, attempt: int) -> Any:
        return FatedWriter(self.files.begin(part, attempt), self.mark, self.fate)


class FatedWriter:
    def __init__(self, writer: PartWriter, mark: str, fate: Fate) -> None:
        self._writer, self._mark, self._fate = writer, mark, fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def end(self) -> ResultFile | None:
        file = self._writer.end()
        if file is not None and not Path(self._mark).exists():
            Path(self._mark).write_text(file.name)
            self._fate()
        return file


class FatedSink:
    def __init__(self, sink: Any, mark: str, fate: Fate) -> None:
        self._sink, self._mark, self._fate = sink, mark, fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def result_files(self, batch_id: int) -> Any:
        return FatedFiles(self._sink.result_files(batch_id), self._mark, self._fate)

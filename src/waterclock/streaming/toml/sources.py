"""[source] of a pipeline that is written in Python: the same names, meaning, refusals and words as in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from waterclock.streaming.places.place import Place
from waterclock.streaming.toml.config import Files, source_from
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.table import FileTable
from waterclock.streaming.toml.topics import Topics


def folder(path: str | Path | Place, *, columns: Mapping[str, str] | None = None, **more: Any) -> Files | Reader:
    """Files of the folder at `path`, or at a URI that Spark knows.

    `more` are other keys of [source], such as format="csv" or files_per_batch=4.

    >>> folder("/in", columns={"order": "string", "at": "timestamp"}).files_per_batch
    16
    """
    named = {} if columns is None else {"columns": dict(columns)}
    made = source_from(FileTable("[source]", {**more, **named, "path": str(path)}, Path.cwd()))
    assert isinstance(made, Files | Reader)  # the keys of topics are unknown beside a path
    return made


def topics(servers: str | Sequence[str], topics: Sequence[str], **more: Any) -> Topics:
    """Topics of the brokers at `servers`; `more` are other keys of [source], such as columns={...} or per_batch=1000.

    >>> topics("localhost:9092", ["orders"], columns={"order": "string", "at": "timestamp"}).way
    'python'
    """
    named = servers if isinstance(servers, str) else list(servers)
    given = {**more, "format": "kafka", "servers": named, "topics": list(topics)}
    made = source_from(FileTable("[source]", given, Path.cwd()))
    assert isinstance(made, Topics)
    return made

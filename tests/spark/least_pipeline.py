"""The least pipeline that is one: for tests which change one thing in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waterclock.streaming.toml.config import Config

LEAST = """
[source]
path = "in"
[source.columns]
case = "string"
ts = "timestamp"
[rules]
key = "case"
time = "ts"
[sink]
path = "out.db"
"""


def least_with(folder: Path, sinks: str, source: str = 'path = "in"') -> Config:
    """It with these tables of sinks, and from another source, as a file in `folder`; loaded."""
    from waterclock.streaming.toml.config import load

    (folder / "in").mkdir(exist_ok=True)
    text = LEAST.partition("[sink]")[0].replace('path = "in"', source) + sinks
    (folder / "pipeline.toml").write_text(text)
    return load(folder / "pipeline.toml")

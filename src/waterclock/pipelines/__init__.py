"""Pipelines, whichever engine runs them: `waterclock run`, `waterclock state` beside it, and `Pipeline` for programs.

    pipeline.py   `Pipeline(engine=)`, of a program; folder(...) and topics(...) stand in streaming/toml/sources.py
    command.py    the options, the run, what is printed
    engines.py    Spark, and this process alone: what the command needs of each
    progress.py   the bar and the table at the end
    state.py      `waterclock state`: what a checkpoint holds, and how it is carried over
    moving.py     from one engine to the other
    returning.py  the same from Spark

Rule 1: what is one engine's alone stands in its room (spark/, local/); what both are made of, in streaming/.
Rule 2: importing this imports neither, and nothing from outside the standard library.
"""

from typing import TYPE_CHECKING, Any

from waterclock.errors import pip_install
from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.pipelines.pipeline import Pipeline
    from waterclock.streaming.toml.sources import folder, topics

__all__ = ["Pipeline", "folder", "topics"]

_SOURCES = "waterclock.streaming.toml.sources"
_HOME = {"Pipeline": "waterclock.pipelines.pipeline", "folder": _SOURCES, "topics": _SOURCES}
__getattr__: Any = first_use(__name__, _HOME, lambda: pip_install("local"))

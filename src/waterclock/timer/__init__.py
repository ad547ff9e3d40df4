"""Two drivers that turn a timing wheel by a clock: `Timer` from a thread, `AsyncTimer` from an asyncio loop."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from waterclock.timer.statistics import Lateness, TimerStatistics

if TYPE_CHECKING:
    from waterclock.timer.driver import Handle
    from waterclock.timer.idle import IdleTimeout
    from waterclock.timer.loop import AsyncTimer
    from waterclock.timer.thread import Timer

__all__ = ["AsyncTimer", "Handle", "IdleTimeout", "Lateness", "Timer", "TimerStatistics"]

_HOME = {"AsyncTimer": "loop", "Handle": "driver", "IdleTimeout": "idle", "Timer": "thread"}


def __getattr__(name: str) -> Any:
    """On first use: who wants a thread does not pay for the import of asyncio."""
    if name not in _HOME:
        raise AttributeError(f"module 'waterclock.timer' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"waterclock.timer.{_HOME[name]}"), name)
    return found

"""Two drivers that turn a timing wheel by a clock: `Timer` from a thread, `AsyncTimer` from an asyncio loop."""

from typing import TYPE_CHECKING

from waterclock.lazily import first_use
from waterclock.timer.statistics import Lateness, TimerStatistics

if TYPE_CHECKING:
    from waterclock.timer.driver import Handle
    from waterclock.timer.idle import IdleTimeout
    from waterclock.timer.loop import AsyncTimer
    from waterclock.timer.thread import Timer

__all__ = ["AsyncTimer", "Handle", "IdleTimeout", "Lateness", "Timer", "TimerStatistics"]

_HOME = {
    "AsyncTimer": "waterclock.timer.loop",
    "Handle": "waterclock.timer.driver",
    "IdleTimeout": "waterclock.timer.idle",
    "Timer": "waterclock.timer.thread",
}
# who wants a thread does not pay for the import of asyncio
__getattr__ = first_use(__name__, _HOME)

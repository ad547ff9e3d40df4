"""Kafka's way with time, for Python: timing wheels, timers, the purgatory; rules that make streams ordered and on time.

Rule 1: names are imported on first use, so that `import waterclock` costs nothing that is not needed.
"""

from typing import TYPE_CHECKING

from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.clock import ManualClock, SystemClock
    from waterclock.errors import PurgatoryClosed, TimerClosed, TimerFull
    from waterclock.keyed import Debounce, ExpiringMap, Throttle
    from waterclock.purgatory import DelayedOperation, Purgatory
    from waterclock.rules import Result, Rules
    from waterclock.timer import AsyncTimer, IdleTimeout, Timer
    from waterclock.timer.manual_loop import ManualLoop, manual_loop
    from waterclock.wheel import ArrayWheel, TimingWheel

__version__ = "0.1.0"
__all__ = [
    "ArrayWheel",
    "AsyncTimer",
    "Debounce",
    "DelayedOperation",
    "ExpiringMap",
    "IdleTimeout",
    "ManualClock",
    "ManualLoop",
    "Purgatory",
    "PurgatoryClosed",
    "Result",
    "Rules",
    "SystemClock",
    "Throttle",
    "Timer",
    "TimerClosed",
    "TimerFull",
    "TimingWheel",
    "__version__",
    "manual_loop",
]

_HOME = {
    "ArrayWheel": "waterclock.wheel",
    "AsyncTimer": "waterclock.timer",
    "Debounce": "waterclock.keyed",
    "ExpiringMap": "waterclock.keyed",
    "Throttle": "waterclock.keyed",
    "DelayedOperation": "waterclock.purgatory",
    "Purgatory": "waterclock.purgatory",
    "PurgatoryClosed": "waterclock.errors",
    "IdleTimeout": "waterclock.timer",
    "ManualClock": "waterclock.clock",
    "ManualLoop": "waterclock.timer.manual_loop",
    "manual_loop": "waterclock.timer.manual_loop",
    "SystemClock": "waterclock.clock",
    "Result": "waterclock.rules",
    "Rules": "waterclock.rules",
    "Timer": "waterclock.timer",
    "TimerClosed": "waterclock.errors",
    "TimerFull": "waterclock.errors",
    "TimingWheel": "waterclock.wheel",
}
__getattr__ = first_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)

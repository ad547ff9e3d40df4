"""Kafka's way with time, for Python: timing wheels, and rules that make streams ordered, exact and on time.

Names are imported on first use, so that `import waterclock` costs nothing that is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waterclock.clock import ManualClock, SystemClock
    from waterclock.rules import Result, Rules
    from waterclock.wheel import ArrayWheel, TimingWheel

__version__ = "0.1.0"
__all__ = ["ArrayWheel", "ManualClock", "Result", "Rules", "SystemClock", "TimingWheel", "__version__"]

_HOME = {
    "ArrayWheel": "waterclock.wheel",
    "ManualClock": "waterclock.clock",
    "SystemClock": "waterclock.clock",
    "Result": "waterclock.rules",
    "Rules": "waterclock.rules",
    "TimingWheel": "waterclock.wheel",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'waterclock' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)

"""What has a time for each key, on a driver's wheel: `ExpiringMap`, `Debounce`, `Throttle`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waterclock.keyed.debounce import Debounce
    from waterclock.keyed.expiring_map import ExpiringMap
    from waterclock.keyed.throttle import Throttle

__all__ = ["Debounce", "ExpiringMap", "Throttle"]

_HOME = {"Debounce": "debounce", "ExpiringMap": "expiring_map", "Throttle": "throttle"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'waterclock.keyed' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"waterclock.keyed.{_HOME[name]}"), name)
    return found

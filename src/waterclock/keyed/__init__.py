"""What has a time for each key, on a driver's wheel: `ExpiringMap`, `Debounce`, `Throttle`."""

from typing import TYPE_CHECKING

from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.keyed.debounce import Debounce
    from waterclock.keyed.expiring_map import ExpiringMap
    from waterclock.keyed.throttle import Throttle

__all__ = ["Debounce", "ExpiringMap", "Throttle"]

_HOME = {
    "Debounce": "waterclock.keyed.debounce",
    "ExpiringMap": "waterclock.keyed.expiring_map",
    "Throttle": "waterclock.keyed.throttle",
}
__getattr__ = first_use(__name__, _HOME)

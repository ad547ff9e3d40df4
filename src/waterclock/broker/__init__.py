"""Kafka's protocol on one machine: `Broker`, from inside a process; `waterclock broker` is the same as a command.

Rule 1: names are imported on first use: the command's options are made at every start of `waterclock`, and must cost
        nothing.
"""

from typing import TYPE_CHECKING

from waterclock.errors import pip_install
from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.broker.api.faults import Fault, Faults
    from waterclock.broker.broker import Broker
    from waterclock.broker.errors import DataInUse, LogDamaged
    from waterclock.broker.security.access import Access
    from waterclock.broker.security.link import LinkAccess
    from waterclock.broker.statistics import BrokerStatistics
    from waterclock.broker.wire.errors import Error

__all__ = ["Access", "Broker", "BrokerStatistics", "DataInUse", "Error", "Fault", "Faults", "LinkAccess", "LogDamaged"]

_HOME = {
    "Access": "waterclock.broker.security.access",
    "Broker": "waterclock.broker.broker",
    "BrokerStatistics": "waterclock.broker.statistics",
    "DataInUse": "waterclock.broker.errors",
    "Error": "waterclock.broker.wire.errors",
    "Fault": "waterclock.broker.api.faults",
    "Faults": "waterclock.broker.api.faults",
    "LinkAccess": "waterclock.broker.security.link",
    "LogDamaged": "waterclock.broker.errors",
}
__getattr__ = first_use(__name__, _HOME, lambda: pip_install("broker"))

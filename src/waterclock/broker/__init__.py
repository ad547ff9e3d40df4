"""Kafka's protocol on one machine: `Broker`, from inside a process; `waterclock broker` is the same as a command."""

from waterclock.broker.broker import Broker
from waterclock.broker.errors import DataInUse, LogDamaged
from waterclock.broker.faults import Fault, Faults
from waterclock.broker.security.access import Access
from waterclock.broker.statistics import BrokerStatistics
from waterclock.broker.wire.errors import Error

__all__ = ["Access", "Broker", "BrokerStatistics", "DataInUse", "Error", "Fault", "Faults", "LogDamaged"]

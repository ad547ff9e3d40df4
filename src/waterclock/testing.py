"""What a user's test needs: a broker in the process, its faults, a clock that is turned by hand.

The fixtures of pytest_plugin.py are there in every pytest run once waterclock is installed; this is for those who write
their own, or use another test runner.

>>> with Broker(settings={"num.partitions": "3"}, clock=ManualClock()) as broker:
...     broker.create_topic("orders")
...     with broker.faults.drop("Produce", after=True):
...         broker.advance_s(60)
"""

from waterclock.broker import Broker, BrokerStatistics, DataInUse, Error, Fault, Faults, LogDamaged
from waterclock.clock import ManualClock, SystemClock

__all__ = [
    "Broker",
    "BrokerStatistics",
    "DataInUse",
    "Error",
    "Fault",
    "Faults",
    "LogDamaged",
    "ManualClock",
    "SystemClock",
]

"""What a user's test needs: a broker in the process, its faults, a clock that is turned by hand.

The fixtures of pytest_plugin.py are there in every pytest run once waterclock is installed; this is for those who write
their own, or use another test runner.

>>> with Broker(settings={"num.partitions": "3"}, clock=ManualClock()) as broker:
...     broker.create_topic("orders")
...     with broker.faults.drop("Produce", after=True):
...         broker.advance_s(60)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from waterclock.broker import Broker, BrokerStatistics, DataInUse, Error, Fault, Faults, LogDamaged
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import EnvironmentMissing, pip_install

if TYPE_CHECKING:
    from waterclock.simulation.universe import Universe

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
    "universe",
]


def universe(
    seed: int, faults: Iterable[str] | None = None, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[Universe]:
    """A simulated broker, around which a user's own aiokafka code runs under virtual time: one seed, one history.

    `faults` are some of `kill`, `freeze`, `power_cut`, `reset`, `slow_disk`, `full_disk`, `slow_network`; all of them where
    nothing is said. `settings` are the broker's. `EnvironmentMissing` without the extra `simulation`.
    """
    try:
        from waterclock.simulation.nemesis import FAULTS
        from waterclock.simulation.universe import universe
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "waterclock"):
            raise
        raise EnvironmentMissing(
            f"{missing} is missing, and a universe needs it: {pip_install('simulation')}"
        ) from None
    return universe(seed, FAULTS if faults is None else faults, settings)

"""A process's clocks, and what else it takes from outside that is neither a file nor a thread: what is random."""

from __future__ import annotations

import uuid as real
from typing import TYPE_CHECKING

from waterclock.simulation.world import MS, NS, world

if TYPE_CHECKING:
    from waterclock.simulation.processes import Process


class Clock:
    """A process's clock: the universe's time, and a date that may be stepped."""

    def __init__(self, process: Process) -> None:
        self._world, self._process = world(), process

    def monotonic_ns(self) -> int:
        """Virtual nanoseconds."""
        return self._world.now

    def monotonic_s(self) -> float:
        """Virtual seconds."""
        return self.monotonic_ns() / 1e9

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as its machine believes."""
        return self._world.wall_shift_ms + self._world.now // MS + self._process.skew_ms

    def sleep_s(self, duration_s: float) -> None:
        """Let virtual time pass."""
        self._world.sleep(round(duration_s * NS))


class Machine(Clock):
    """What the product measures its own work by: time stands still in a callback, and creeps with each look at this."""

    def monotonic_ns(self) -> int:
        """Virtual nanoseconds, and up to 40 us more."""
        here = self._world
        here.clock_ns = max(here.clock_ns, here.now) + int(here.rng.random() * 40_000)
        return here.clock_ns

    def elapsed_ns(self) -> int:
        """Virtual nanoseconds."""
        return self._world.now


class Uuid:
    """`uuid`."""

    UUID, NAMESPACE_OID, uuid5 = real.UUID, real.NAMESPACE_OID, staticmethod(real.uuid5)

    @staticmethod
    def uuid4() -> real.UUID:
        """As Python's, by the seed."""
        return real.UUID(int=world().stream("uuid").getrandbits(128), version=4)


class Secrets:
    """`secrets`."""

    @staticmethod
    def token_bytes(count: int = 32) -> bytes:
        """As Python's, by the seed."""
        return world().stream("secrets").randbytes(count)

    @staticmethod
    def token_hex(count: int = 32) -> str:
        """As Python's, by the seed."""
        return Secrets.token_bytes(count).hex()

    token_urlsafe = token_hex

"""A relay on a machine of its own: what `waterclock relay` does, with kills, power cuts and a clock that is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.kafka.batches import Record
from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.relay.options import RelayOptions
from waterclock.relay.relay import IDLE_S, Relay
from waterclock.simulation import disk
from waterclock.simulation.clocks import Clock
from waterclock.simulation.processes import Process, _place
from waterclock.simulation.world import MS, NS, US

FOLDER = Path("/data/relay")
MOST_MS = 1_000_000  # Kafka refuses what is dated an hour ahead of its broker's clock, which may be 2,400 s off itself
RARE = ("rename", "rename after", "unlink", "ftruncate", "open", "fsync before", "fsync after", "pwrite after")


class RelayProcess(Process):
    """`where`: how its clients find the broker. `latest_ms`: the latest date that its clock has shown."""

    def __init__(self, node: RelayNode) -> None:
        super().__init__(node.name, node.disk)
        self.where: Callable[[], tuple[str, int]] = node.universe.where
        self.node, self.skew_ms = node, node.skew_ms
        self.clock, self.latest_ms, self.stops = _Seen(self), 0, False

    def wall_ms(self) -> int:
        return self.clock.wall_ms()

    def saw_produced(self, topic: str, record: Record) -> None:
        self.node.promises.produced(self, topic, record)

    def was_silent(self, began_ns: int) -> None:
        self.node.promises.silent(began_ns)

    def saw_read(self, topic: str, number: int, record: Record) -> None:
        self.node.promises.read(topic, number, record)


class _Seen(Clock):
    def __init__(self, process: RelayProcess) -> None:
        super().__init__(process)
        self._of = process

    def wall_ms(self) -> int:
        now_ms = super().wall_ms()
        self._of.latest_ms = max(self._of.latest_ms, now_ms)
        return now_ms


class RelayNode:
    """`promises` hear of each record that it sends."""

    def __init__(self, universe: Any, name: str, options: dict[str, Any], promises: Any) -> None:
        self.universe, self.world, self.name = universe, universe.world, name
        self.options, self.promises = options, promises
        self.disk = disk.Disk(name)
        self.rng = self.world.stream(f"node {name}")
        self.process: RelayProcess | None = None
        self.skew_ms = self.starts = self.explained_ns = 0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        if self.alive:
            return
        self.starts += 1
        process = self.process = RelayProcess(self)
        process.main(_rest())
        process.begin_thread(partial(self._live, process), "relay")

    def _live(self, process: RelayProcess) -> None:
        """As `waterclock relay` does."""
        options = RelayOptions(servers="simulated:9092", folder=FOLDER, **self.options)
        try:
            relay = Relay(options, process.clock, self._lost, machine=process.clock)
            self.world.log(self.name, "is up")
            try:
                while relay.goes_on(process.stops):
                    relay.step(IDLE_S)
                    self.world.sleep(10 * US + self.rng.randrange(200 * US))  # a step takes time
            except WaterclockError:
                relay.close(checkpoint=False)
                raise
            relay.close()
            self.world.log(self.name, "closed")
        except (EnvironmentMissing, OSError) as error:
            self.world.log(self.name, "ends", type(error).__name__, error)
            lately = self.world.now < self.explained_ns or self.disk.full or self.disk.broken_flush
            if not isinstance(error, EnvironmentMissing) and not lately:
                self.world.problem("ended", f"{self.name}: {type(error).__name__}: {error}")
        except Exception as error:
            self.world.problem("ended", f"{self.name}: {type(error).__name__}: {error} at {_place(error)}")
        self._down(process)

    def _lost(self, error: WaterclockError) -> None:
        self.world.log(self.name, "lost", error)

    def _down(self, process: RelayProcess) -> None:
        process.kill()
        self.goes_down()

    def goes_down(self) -> None:
        """It is dead, and comes back."""
        self.world.at(self.world.now + self.rng.choice((20 * MS, 300 * MS, 2 * NS, 8 * NS)), self.start)

    # Faults

    def kill(self) -> None:
        self._at_some_call(self._kill)

    def cut_power(self) -> None:
        self._at_some_call(self._cut_power)

    def _at_some_call(self, deed: Callable[[RelayProcess, str], None]) -> None:
        process = self.process
        assert process is not None
        if self.rng.random() < 0.3:
            deed(process, "now")
            return
        is_rare = self.rng.random() < 0.5
        process.doom_at = self.rng.choice(RARE) if is_rare else None
        process.doom = self.rng.randrange(1, 5 if is_rare else self.rng.choice((5, 40, 200)))
        process.doomed = partial(deed, process)

    def _kill(self, process: RelayProcess, where: str) -> None:
        if process.alive:
            self.universe.count("relay killed")
            self.world.log(self.name, "killed", where)
            self._down(process)

    def _cut_power(self, process: RelayProcess, where: str) -> None:
        if process.alive:
            self.universe.count("relay without power")
            self.world.log(self.name, "power cut", where, process.lose_power())
            self._down(process)

    def stop(self) -> None:
        self.universe.count("relay stopped")
        assert self.process is not None
        self.process.stops = True

    def roll(self) -> None:
        """All are stopped, one after the other, or at once."""
        pause_ns = self.rng.choice((0, 500 * MS, 4 * NS))
        for number, node in enumerate(self.universe.relays.nodes):
            self.world.at(self.world.now + number * pause_ns, lambda node=node: node.alive and node.stop())

    def freeze(self) -> None:
        self.universe.count("relay frozen")
        assert self.process is not None
        self.process.frozen_until = self.world.now + self.rng.choice((200 * MS, 3 * NS, 12 * NS))

    def set_clock(self) -> None:
        self.universe.count("relay's clock set")
        self.step_ms(self.rng.choice((1, -1)) * self.rng.choice((self.rng.randrange(1000), 3_000, 60_000, MOST_MS)))

    def step_ms(self, step_ms: int) -> None:
        self.skew_ms = max(-MOST_MS, min(MOST_MS, self.skew_ms + step_ms))
        if self.process is not None:
            self.process.skew_ms = self.skew_ms

    def fill_disk(self) -> None:
        self.universe.count("relay's disk full")
        self.disk.full = True
        until_ns = self.world.now + self.rng.randrange(NS, 5 * NS)
        self.may_fail(until_ns)
        self.world.at(until_ns, self.has_room)

    def may_fail(self, until_ns: int) -> None:
        """Its disk is full, until then at most: what is due is late for it, and an end soon behind is explained."""
        self.promises.no_room(until_ns)
        self.explained_ns = until_ns + NS

    def has_room(self) -> None:
        self.disk.full = False

    def break_flush(self) -> None:
        self.universe.count("relay's flush fails")
        self.disk.broken_flush = True
        self.world.at(self.world.now + self.rng.randrange(1 * MS, 200 * MS), self._mend)

    def _mend(self) -> None:
        self.disk.broken_flush = False

    def pacify(self) -> None:
        """No faults any more."""
        self.disk.full = self.disk.broken_flush = False
        self.step_ms(-self.skew_ms)
        if self.process is not None:
            self.process.have_peace()
        self.start()


async def _rest() -> None:
    """The loop is for the client's sake."""
    await asyncio.get_running_loop().create_future()

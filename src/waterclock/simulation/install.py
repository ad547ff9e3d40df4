"""Puts the simulation in the place of the machine, in every module of the product's broker: what seams would do.

A module's own names are replaced (`os`, `open`, `threading`, `queue`, `socket`, `uuid`, ...), never Python's modules.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import pkgutil
import sys
import uuid as real_uuid
from types import SimpleNamespace

from waterclock.simulation import files, network
from waterclock.simulation import world as worlds
from waterclock.simulation.processes import Event, Lock, SimpleQueue, Thread
from waterclock.simulation.world import NS, world


class Clock:
    """A process's clock: the universe's time, and a date that the nemesis steps."""

    def __init__(self, process):
        self._world, self._process = world(), process

    def monotonic_ns(self):
        return self._world.now

    def monotonic_s(self):
        return self._world.now / 1e9

    def wall_ms(self):
        return self._world.wall_shift_ms + self._world.now // worlds.MS + self._process.skew_ms

    def sleep_s(self, duration_s):
        world().sleep(round(duration_s * NS))


def now_ns():
    """What the product measures its own work by: time stands still in a callback, and creeps here."""
    world_ = world()
    world_.clock_ns = max(world_.clock_ns, world_.now) + int(world_.rng.random() * 40_000)
    return world_.clock_ns


class Uuid:
    UUID = real_uuid.UUID

    @staticmethod
    def uuid4():
        return real_uuid.UUID(int=world().stream("uuid").getrandbits(128), version=4)


class Secrets:
    @staticmethod
    def token_bytes(count):
        return world().stream("secrets").randbytes(count)

    @staticmethod
    def token_urlsafe(count):
        return world().stream("secrets").randbytes(count).hex()


class OrderedSet(dict):
    """A set in the order of adding: where the product walks one, Python's own order hangs on hashes and addresses."""

    def __init__(self, items=()):
        super().__init__(dict.fromkeys(items))

    def add(self, one):
        self[one] = None

    def discard(self, one):
        self.pop(one, None)

    def remove(self, one):
        del self[one]

    def update(self, *several):
        for some in several:
            super().update(dict.fromkeys(some))

    def difference_update(self, *several):
        for some in several:
            for one in some:
                self.pop(one, None)

    def __eq__(self, other):
        return set(self) == set(other)

    def __or__(self, other):
        return OrderedSet([*self, *other])

    def __sub__(self, other):
        return OrderedSet(one for one in self if one not in other)

    def __rsub__(self, other):
        return OrderedSet(one for one in other if one not in self)

    def __and__(self, other):
        return OrderedSet(one for one in self if one in other)


WALKED = ("waterclock.broker.log.aborted",)


class Asyncio:
    """`asyncio`, for the one module that opens connections with it."""

    def __getattr__(self, name):
        return getattr(asyncio, name)

    @staticmethod
    async def open_connection(host, port, limit=0, ssl=None):
        return await network.open_connection(host, port)


THREADING = SimpleNamespace(
    Thread=Thread, Lock=Lock, Event=Event, current_thread=lambda: world().thread, get_ident=lambda: 1
)
QUEUE = SimpleNamespace(SimpleQueue=SimpleQueue)
SHUTIL, FCNTL, SOCKET = files.Shutil(), files.Fcntl(), network.SocketModule()
INSTALLED = []


class Log(logging.Handler):
    """The product's log lines belong to the history."""

    def emit(self, record):
        world_ = world()
        if world_ is None or world_.thread is None:
            return
        text = record.getMessage()
        world_.log("log", world_.thread.process.name, record.levelname, text)
        if record.exc_info and world_.thread.process.alive:
            world_.problem("traceback", f"{text}: {record.exc_info[1]!r}")


def install():
    if INSTALLED:
        return
    from waterclock.broker.wire.codec import import_kio

    import_kio()
    import waterclock.broker

    for found in pkgutil.walk_packages(waterclock.broker.__path__, "waterclock.broker."):
        if "sqlite" not in found.name:
            importlib.import_module(found.name)
    from waterclock import outside

    fakes = dict(
        os=files.OS,
        shutil=SHUTIL,
        fcntl=FCNTL,
        socket=SOCKET,
        uuid=Uuid,
        secrets=Secrets,
        threading=THREADING,
        queue=QUEUE,
        open_file=files.sim_open,
        open_connection=network.open_connection,
    )
    real = {n: getattr(outside, n) for n in outside.DOORS}
    for name, module in sorted(sys.modules.items()):
        if name.startswith(("waterclock.broker", "waterclock.disk", "waterclock.outside")):
            for door in real:
                if vars(module).get(door) is real[door]:
                    setattr(module, door, fakes[door])
    INSTALLED.append(1)
    logger = logging.getLogger("waterclock")
    logger.propagate = False
    logger.addHandler(Log())
    logger.setLevel(logging.INFO)


class Machine(Clock):
    def monotonic_ns(self):
        return now_ns()

    def monotonic_s(self):
        return now_ns() / 1e9

    def elapsed_ns(self):
        return self._world.now

"""The simulation in the place of the machine: the doors (`outside.py`) lead into the simulated world.

Rule 1: names of the product's modules are bound anew, never anything in Python's own modules; leaving binds the real ones
    again. What is imported meanwhile takes its doors from `outside`, and is bound back with the others.
Rule 2: nobody of the product may be at work in this process: a broker that runs would find itself between two worlds.
Rule 3: the garbage collector stands still inside: dead processes' objects are freed between histories (`sweep`).
"""

from __future__ import annotations

import gc
import importlib
import logging
import pkgutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final

from waterclock.errors import UsageError
from waterclock.outside import DOORS
from waterclock.simulation.clocks import Clock, Machine, Secrets, Uuid
from waterclock.simulation.files import OS
from waterclock.simulation.futures import FUTURES
from waterclock.simulation.network import SocketModule
from waterclock.simulation.open_files import Fcntl, Shutil, open_file
from waterclock.simulation.streams import open_connection
from waterclock.simulation.threads import QUEUE, THREADING
from waterclock.simulation.world import DeadProcess, world

ROOMS: Final = ("broker", "cdc", "disk", "kafka", "outside", "ports", "relay")
"""Whose modules take what is outside from the doors."""
BEHIND: Final[Mapping[str, Any]] = {
    "fcntl": Fcntl(), "futures": FUTURES, "open_connection": open_connection, "open_file": open_file, "os": OS,
    "queue": QUEUE, "secrets": Secrets, "shutil": Shutil(), "socket": SocketModule(), "threading": THREADING, "uuid": Uuid,
}  # fmt: skip
"""What each door leads to."""
REAL: Final[Mapping[str, Any]] = {door: vars(sys.modules["waterclock.outside"])[door] for door in DOORS}
_for_good = ExitStack()
_inside: list[bool] = []

__all__ = ["Clock", "Machine", "install", "installed", "sweep"]


class HistoryLog(logging.Handler):
    """The product's warnings and errors belong to the history; a traceback is a problem. Other lines go to the trace."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write down a line."""
        here = world()
        if here is None or here.thread is None:
            return
        text, process = record.getMessage(), here.thread.process
        write = here.log if record.levelno >= logging.WARNING else here.remark
        write("log", process.name, record.levelname, text)
        if record.exc_info and process.alive:
            here.problem("traceback", f"{text}: {record.exc_info[1]!r}")


@contextmanager
def installed() -> Iterator[None]:
    """Inside, the product lives in the simulated world. UsageError while a real broker runs in this process."""
    if _inside:  # within another one
        yield
        return
    _refuse_a_real_broker()
    _import_the_broker()
    with ExitStack() as leaving:
        leaving.callback(_inside.clear)
        _inside.append(True)
        bound = _modules()
        leaving.callback(lambda: _bind({**bound, **_modules()}, BEHIND, REAL))
        _bind(bound, REAL, BEHIND)
        leaving.enter_context(_logged())
        leaving.enter_context(_no_garbage_collector())
        leaving.enter_context(_no_word_of_the_dead())
        yield


def install() -> None:
    """The same for the rest of this process."""
    if not _inside:
        _for_good.enter_context(installed())


def sweep() -> None:
    """Free what histories left that are over."""
    gc.collect()


def settle() -> None:
    """The same; and what is there now stays for good: it is not looked through again with each sweep."""
    gc.collect()
    gc.freeze()


def hear(all_lines: bool) -> None:
    """Of the product's log: all lines, for a trace, or warnings and errors. Nobody reads the others."""
    logging.getLogger("waterclock").setLevel(logging.INFO if all_lines else logging.WARNING)


def _refuse_a_real_broker() -> None:
    if any(thread.name == "broker" for thread in threading.enumerate()):
        raise UsageError(
            "a broker runs in this process, and would lose its files and threads to the simulation: close it first"
        )


def _import_the_broker() -> None:
    """All of it, before the doors lead elsewhere: what a module makes of them as it is imported stays real."""
    import waterclock.broker
    from waterclock.broker.wire.codec import import_kio

    import_kio()
    for found in pkgutil.walk_packages(waterclock.broker.__path__, "waterclock.broker."):
        importlib.import_module(found.name)


def _modules() -> dict[str, ModuleType]:
    """The product's modules that are loaded and have doors."""
    names = [(name, name.split(".")) for name in sys.modules]
    return {
        name: sys.modules[name]
        for name, parts in names
        if parts[0] == "waterclock" and parts[1:2] and parts[1] in ROOMS
    }


def _bind(modules: Mapping[str, ModuleType], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Bind their doors anew."""
    for module in modules.values():
        for door in DOORS:
            if vars(module).get(door) is before[door]:
                setattr(module, door, after[door])


@contextmanager
def _logged() -> Iterator[None]:
    """The product's lines go to the history, and nowhere else."""
    logger, handler = logging.getLogger("waterclock"), HistoryLog()
    before = logger.propagate, logger.level, logger.handlers
    logger.propagate, logger.handlers = False, [handler]
    hear(all_lines=False)
    try:
        yield
    finally:
        logger.propagate, logger.handlers = before[0], before[2]
        logger.setLevel(before[1])


@contextmanager
def _no_garbage_collector() -> Iterator[None]:
    """What was there before is no garbage of a history: it is not looked through again and again."""
    before = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if before:
            gc.enable()


@contextmanager
def _no_word_of_the_dead() -> Iterator[None]:
    """What is left of a dead process is freed with its history, or with the next one. What a generator of it would still do
    then is not done, as nothing is after kill -9, and Python is not to tell of it."""
    before = sys.unraisablehook

    def tell(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, DeadProcess):
            before(unraisable)

    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = before

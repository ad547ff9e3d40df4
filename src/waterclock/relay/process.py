"""`waterclock relay` as a process: until Ctrl-C or SIGTERM.

Rule 1: a signal is heard between two steps: what is being filed is filed whole. A second one ends at once; what no
        checkpoint has is read again from the log. Where a log is read for long, it is heard in between.
"""

from __future__ import annotations

import gc
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from uuid import uuid4

from waterclock.clock import SystemClock
from waterclock.disk import FolderLock, WithoutLocks, make_folder, write_whole
from waterclock.errors import UsageError
from waterclock.kafka.settings import base_settings, from_file
from waterclock.relay.cluster.beginning import begun
from waterclock.relay.memory import MemoryTrim
from waterclock.relay.options import RelayOptions, StandsBy
from waterclock.relay.owner.context import staying
from waterclock.relay.relay import IDLE_S, Relay
from waterclock.relay.statistics import prometheus
from waterclock.relay.watching.progress import Progress
from waterclock.relay.watching.recurring import recurring, with_series
from waterclock.relay.wire.topics import Topics, check_names
from waterclock.web.option import open_server

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NAME = re.compile(rb"[\w.-]{1,100}")


def serve(arguments: Namespace) -> int:
    """The relay, with a broker of its own where --embedded asks for one."""
    check_names(Topics.of(arguments.topic))  # Kafka would be waited for
    clock = SystemClock()
    _collect_seldom()
    shown, memory = Progress(clock, arguments.json), MemoryTrim(clock)
    with ExitStack() as stack:
        stack.enter_context(_heard(signal.default_int_handler))  # nothing is under way yet that is to be finished
        if arguments.embedded:
            folder = Path(arguments.embedded)
            broker = stack.enter_context(arguments.start_broker(folder / "broker", arguments.port))
            servers, folder = broker.bootstrap, Path(arguments.folder or folder / "relay")
        else:
            servers, folder = arguments.bootstrap, Path(arguments.folder or f"out/relay/{arguments.topic}")
        name = stack.enter_context(_folder_alone(folder))
        stop = list[int]()
        reading = partial(_reading, shown, stop)
        options = _options(arguments, servers, folder, name)
        settings = staying(base_settings(servers, options.settings or {}))
        relay = begun(settings, options.topic, partial(Relay, options, clock, shown.lost, reading), shown.lost, clock)
        stack.enter_context(_heard(partial(_note, stop)))
        try:
            stack.enter_context(open_server(arguments.metrics, "relay", relay.statistics, prometheus, pages_of(relay)))
            print(
                f"waterclock relay ready: requests go to {relay.topics.input} on {servers}, files in {folder}",
                flush=True,
            )
            with suppress(_Interrupted):
                while not stop:
                    memory.step(relay.step(IDLE_S), relay.wait_s(IDLE_S))
                    shown.report(relay.statistics())
        except BaseException:
            relay.close(checkpoint=False)
            raise
        relay.close()
        statistics = relay.statistics()
    shown.end(statistics)
    return 0


class _Interrupted(Exception):
    """A signal came while a log was read: what was read so far is of no use, and nothing is lost with it."""


def _reading(shown: Progress, stop: list[int], log: str, done: int, all: int) -> None:
    if stop:
        raise _Interrupted
    shown.reading(log, done, all)


def pages_of(relay: Relay) -> dict[str, Callable[[str], object]]:
    """What `show` and `ls` ask besides the statistics."""
    asked = relay.owners, relay.lock, relay.topics.input
    return {"/ids/": lambda id: with_series(relay.show(id), *asked), "/series/": lambda _: recurring(*asked)}


def _collect_seldom() -> None:
    """Have the garbage collector look for circles seldom. Records come in tens of thousands and live until they are filed:
    after each few hundred it would look at all of them, find none, and take a third of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def _options(arguments: Namespace, servers: str, folder: Path, name: str) -> RelayOptions:
    group = arguments.group or f"waterclock-relay-{arguments.topic}"
    given = from_file("--kafka-config", arguments.kafka_config)
    name = arguments.name or name
    made = (servers, arguments.topic, folder, group, arguments.partitions, name, given, arguments.lap_bytes)
    return RelayOptions(*made, StandsBy(arguments.standby), bool(arguments.make_targets or arguments.embedded))


@contextmanager
def _folder_alone(folder: Path) -> Iterator[str]:
    """The folder for this process alone; the name that lies in it, made the first time."""
    make_folder(folder)
    lock = FolderLock(folder, "lock", WithoutLocks.REFUSE)
    try:
        lock.take()
    except BlockingIOError:
        raise UsageError(
            f"Another relay works in {folder}: stop it, or give this one a folder of its own (--folder)."
        ) from None
    try:
        yield _name_in(folder / "name")
    finally:
        lock.release()


def _name_in(file: Path) -> str:
    """What stands there; where there is none, or it is damaged, a new one."""
    found = file.read_bytes().strip() if file.exists() else b""
    if not _NAME.fullmatch(found):
        found = uuid4().hex[:12].encode()
        write_whole(file, found)
    return found.decode()


def _note(came: list[int], number: int, frame: FrameType | None) -> None:
    """A second signal raises KeyboardInterrupt."""
    if came:
        raise KeyboardInterrupt
    came.append(number)
    if sys.stderr.isatty():
        print("\r\x1b[Kwaterclock: ending; once more ends it at once", file=sys.stderr, flush=True)


@contextmanager
def _heard(how: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM do this."""
    before = {number: signal.signal(number, how) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""`waterclock relay` as a process: until Ctrl-C or SIGTERM.

Rule 1: a signal is heard between two steps: what is being filed is filed whole. A second one ends at once; what no
        checkpoint has is read again from the log. While a log is read for long, it is heard in between.

Memory that a flood of records took goes back to the system. Records come from the client in tens of thousands. Once they
are filed their memory is free, and stays with the allocator: hundreds of megabytes, which the process may never need again.
glibc gives them back on request, in 10 to 70 ms.

Rule 2: the request is made after `FLOOD` records, once there is nothing to do for `QUIET_S`: nobody waits for it.
Rule 3: another one not before `EVERY_NS`.
Rule 4: for a process that does nothing else. An allocator that has no such request (musl's, that of macOS) is left alone.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from waterclock.clock import Clock, SystemClock
from waterclock.disk import FolderLock, WithoutLocks, allow_many_files, make_folder, write_whole
from waterclock.durations import duration_us
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError, unstopped
from waterclock.kafka.client import Client, Remedies
from waterclock.kafka.patience import Backoff
from waterclock.kafka.settings import READING, base_settings, from_file
from waterclock.outside import uuid
from waterclock.relay.changing import Changes
from waterclock.relay.options import RelayOptions, StandsBy
from waterclock.relay.owner.context import staying
from waterclock.relay.relay import IDLE_S, Relay
from waterclock.relay.statistics import prometheus
from waterclock.relay.watching.due_next import count_of, due_next
from waterclock.relay.watching.fullest import Fullest
from waterclock.relay.watching.gathering import Dials, recurring, with_series
from waterclock.relay.watching.progress import Progress
from waterclock.relay.wire.topics import Topics, check_names
from waterclock.signals import StopSignal, heard
from waterclock.web.console.sources import OwnProcess
from waterclock.web.option import open_server

FLOOD: Final = 100_000  # read or delivered
QUIET_S: Final = 0.1
EVERY_NS: Final = 10_000_000_000
T = TypeVar("T")
PATIENCE_S: Final = 300.0
ATTEMPT_S: Final = 2.0
AGAIN_AFTER_S: Final = 0.5
_NAME = re.compile(rb"[\w.-]{1,100}")


class MemoryTrim:
    """Hears how much a process does, and when it has nothing to do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done = self._next_ns = 0

    def step(self, done: int, free_s: float) -> None:
        """So many records were dealt with, and there is nothing to do for so long."""
        self._done += done
        if self._done >= FLOOD and free_s >= QUIET_S and self._clock.monotonic_ns() >= self._next_ns:
            self._done, self._next_ns = 0, self._clock.monotonic_ns() + EVERY_NS
            give_back()


_trim: Final[Callable[[int], Any] | None] = (
    getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # glibc has it
)


def give_back() -> None:
    """What is free in this process, and in whole pages, goes back to the system."""
    if _trim is not None:
        _trim(0)


def serve(arguments: Namespace) -> int:
    """The relay, with a broker of its own if --embedded asks for one."""
    check_names(Topics.of(arguments.topic))  # Kafka would be waited for
    clock = SystemClock()
    allow_many_files()
    # Records come in tens of thousands and live until they are filed: after each few hundred the garbage collector would
    # look at all of them for circles, find none, and take a third of the time
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    shown, memory = Progress(clock, arguments.json), MemoryTrim(clock)
    with ExitStack() as stack:
        stack.enter_context(heard())  # nothing is under way yet that is to be finished
        servers, folder, also = _servers(arguments, stack)
        name = stack.enter_context(_folder_alone(folder))
        stop = StopSignal(second_raises=True)
        options, reading = _options(arguments, servers, folder, name), partial(_reading, shown, stop)
        settings = staying(base_settings(servers, options.settings or {}))
        relay = begun(settings, options.topic, partial(Relay, options, clock, shown.lost, reading), shown.lost, clock)
        stack.enter_context(stop)
        try:
            stack.enter_context(_web_door(arguments, relay, options, also))
            outbox = stack.enter_context(_outbox(arguments, settings, relay, shown))
            ready = f"waterclock relay ready: requests go to {relay.topics.input} on {servers}, files in {folder}"
            print(ready, flush=True)
            with suppress(_Interrupted):
                while relay.goes_on(bool(stop)):
                    outbox(0 in relay.owners)
                    memory.step(relay.step(IDLE_S), relay.wait_s(IDLE_S))
                    shown.report(relay.statistics())
        except BaseException:
            relay.close(checkpoint=False)
            raise
        relay.close()
        statistics = relay.statistics()
    shown.end(statistics)
    return 0


@contextmanager
def _outbox(
    arguments: Namespace, settings: Mapping[str, Any], relay: Relay, shown: Progress
) -> Iterator[Callable[[bool], object]]:
    """What takes an outbox's rows, if --outbox asks for it: it is told whether this relay is the one that does."""
    if arguments.outbox is None:
        yield lambda does: None
        return
    poll_s = None
    if arguments.outbox_poll is not None:
        try:
            poll_s = duration_us(arguments.outbox_poll, "--outbox-poll") / 1e6
        except ValueError as error:
            raise UsageError(f"{error}: write such as --outbox-poll 1s.") from None
    taker = arguments.take_outbox(arguments.outbox, relay.topics, settings, poll_s, shown.lost)
    try:
        yield taker.owns
    finally:
        taker.close()


def _servers(arguments: Namespace, stack: ExitStack) -> tuple[str, Path, list[OwnProcess]]:
    """Where Kafka is, the folder of the relay's files, and the broker of --embedded, which is started for it."""
    if not arguments.embedded:
        return arguments.bootstrap, Path(arguments.folder or f"out/relay/{arguments.topic}"), []
    folder = Path(arguments.embedded)
    broker = stack.enter_context(arguments.start_broker(folder / "broker", arguments.port))
    own = OwnProcess("broker", broker.statistics, broker.dials)
    return broker.bootstrap, Path(arguments.folder or folder / "relay"), [own]


def _web_door(
    arguments: Namespace, relay: Relay, options: RelayOptions, also: Sequence[OwnProcess]
) -> AbstractContextManager[object]:
    """Of --metrics and --console."""
    dials, clock = Dials(relay.owners, relay.lock, relay.topics.input).seen, SystemClock()
    change = Changes(relay, options.servers, options.settings).change if arguments.allow_changes else None
    seen = Fullest(relay.statistics, relay.owners, relay.lock, clock, arguments.hide_values).seen
    pages = pages_of(relay, arguments.hide_values)
    served = "relay", seen, prometheus, pages, dials, arguments.console, also, change
    return open_server(arguments.metrics, *served)


class _Interrupted(Exception):
    """A signal came while a log was read: what was read so far is of no use, and nothing is lost with it."""


def _reading(shown: Progress, stop: StopSignal, log: str, done: int, all: int) -> None:
    if stop:
        raise _Interrupted
    shown.reading(log, done, all)


def pages_of(relay: Relay, hides: bool = False) -> dict[str, Callable[[str], object]]:
    """What `show`, `ls` and the console ask besides the statistics."""
    where, clock = (relay.owners, relay.lock, relay.topics.input), SystemClock()
    return {
        "/ids/": lambda id: with_series(relay.show(id), *where),
        "/series/": lambda _: recurring(*where),
        "/due/": lambda most: due_next(count_of(most), *where, clock.wall_ms(), hides),
    }


def begun(
    settings: Mapping[str, Any],
    topic: str,
    begin: Callable[[], T],
    said: Callable[[WaterclockError], object],
    clock: Clock,
) -> T:
    """What `begin` makes, once there is a Kafka; `said` hears that it is away.

    1. reach     a broker that answers
    2. begin     the topics are made and looked at, the group is joined (relay.py)

    A broker that does not answer, at 1 or at 2, is waited for, for `PATIENCE_S` in all. Then it is EnvironmentMissing, with
    what to mend: a service that waits for ever for a wrong address would look well. A refusal is an error at once: asking
    again is no use before a password or a right is mended.
    """
    backoff = Backoff((AGAIN_AFTER_S,), clock, PATIENCE_S)
    while True:
        try:
            reading = {**settings, **READING, "group.id": "unused"}
            client = Client(reading, min(ATTEMPT_S, PATIENCE_S), Remedies("--kafka-config", "--bootstrap"), clock)
            try:
                client.partitions([topic])  # 1
            finally:
                client.close()
            return begin()  # 2
        except (EnvironmentMissing, ConnectionLost) as error:
            if backoff.is_over:
                raise EnvironmentMissing(
                    f"{unstopped(error)}. It was waited for, for {PATIENCE_S:.0f} seconds."
                ) from None
        servers = settings["bootstrap.servers"]
        said(ConnectionLost(f"Kafka at {servers} is away: it is waited for, for {PATIENCE_S:.0f} seconds at most."))
        backoff.sleep()


def _options(arguments: Namespace, servers: str, folder: Path, name: str) -> RelayOptions:
    group = arguments.group or f"waterclock-relay-{arguments.topic}"
    given = from_file("--kafka-config", arguments.kafka_config)
    name = arguments.name or name
    made = (servers, arguments.topic, folder, group, arguments.partitions, name, given, arguments.lap_bytes)
    return RelayOptions(
        *made, StandsBy(arguments.standby), bool(arguments.make_targets or arguments.embedded), arguments.hide_values
    )


@contextmanager
def _folder_alone(folder: Path) -> Iterator[str]:
    """The folder for this process alone; the name that lies in it, a new one if there is none, or it is damaged."""
    make_folder(folder)
    lock = FolderLock(folder, "lock", WithoutLocks.REFUSE)
    try:
        lock.take()
    except BlockingIOError:
        raise UsageError(
            f"Another relay works in {folder}: stop it, or give this one a folder of its own (--folder)."
        ) from None
    try:
        file = folder / "name"
        name = file.read_bytes().strip() if file.exists() else b""
        if not _NAME.fullmatch(name):
            name = uuid.uuid4().hex[:12].encode()
            write_whole(file, name)
        yield name.decode()
    finally:
        lock.release()

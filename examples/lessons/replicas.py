"""replicas: acks 0, 1 and all, with a follower that copies or stands still, and a leader that lives or is killed.

Two brokers. The leader is a process of its own, under load from one producer; its follower is here. What the producer was
told is held against what readers find afterwards: at the leader, or where that was killed at the promoted follower.

    acks=0      acknowledged when it is sent
    acks=1      acknowledged when the leader has it
    acks=all    acknowledged when the follower has it too: min.insync.replicas is 2

Rule 1: the follower stands still (`faults.freeze`) before the load begins, as a process on a busy machine does.
Rule 2: a kill is kill -9 of a leader that was stopped a moment before, under load: some of what was sent it has never read.
Rule 3: rates are of what was acknowledged while the load went on.
"""

from __future__ import annotations

import logging
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from waterclock.clock import SystemClock
from waterclock.examples.lessons import acks as one_broker
from waterclock.examples.lessons.clients import PATIENCE_S, producer, read, send
from waterclock.examples.lessons.lesson import Lesson, tell
from waterclock.testing import Broker

LOAD_S = 0.5
LOOK_S = 0.05  # between two looks at what has arrived
TOPIC = one_broker.TOPIC
SETTINGS = {"min.insync.replicas": "2"}
FOLLOWER = {True: "stands still", False: "copies"}
LEADER = {True: "killed", False: "lives"}


class Case(NamedTuple):
    """One row: what the producer asks for, and what happens to the brokers."""

    acks: str
    frozen: bool
    killed: bool


CASES = [Case(*one) for one in product(one_broker.ACKS, (False, True), (False, True))]


def lesson(cases: list[Case] | None = None, load_s: float = LOAD_S) -> Lesson:
    """Each case with two brokers of its own."""
    with quiet():
        rows = [run(case, load_s) for case in (CASES if cases is None else cases)]
    return Lesson(
        "replicas: what was acknowledged, and what readers find afterwards",
        rows,
        [
            "acks=0: nobody knows what arrived. Some is lost as soon as anything goes wrong.",
            "acks=1: what the follower had not copied is lost with the leader, and that is all while it stands still.",
            "acks=all with min.insync.replicas=2: nothing that was acknowledged is lost. While the follower stands still "
            "nothing is acknowledged: the producer waits, and knows it.",
            "What acks=all costs is a round to the follower: see the rates. Batches share it.",
        ],
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Without the follower's own warnings that its leader is gone, which is the lesson's doing."""
    broker = logging.getLogger("waterclock.broker")
    before = broker.level
    broker.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        broker.setLevel(before)


def run(case: Case, load_s: float) -> dict[str, Any]:
    """The load, and what is left of it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        process, bootstrap = stack.enter_context(leading(folder / "one"))
        follower = stack.enter_context(Broker(folder / "two", settings=SETTINGS, follow=bootstrap))
        load, before = ready(case, bootstrap, follower)
        seconds, in_time = loaded(load, load_s)
        if case.killed:
            kill(load, process)
        load.end()
        acknowledged = set(load.reported) - before
        kept = left(case, acknowledged, bootstrap, follower)
    tell(f"{described(case)}: {len(acknowledged):,} acknowledged, {len(acknowledged - kept):,} of them lost")
    return {
        "acks": case.acks,
        "follower": FOLLOWER[case.frozen],
        "leader": LEADER[case.killed],
        "acknowledged": len(acknowledged),
        "kept": len(acknowledged & kept),
        "lost": len(acknowledged - kept),
        "messages/s": round((in_time - len(before)) / seconds),
    }


def described(case: Case) -> str:
    return f"acks={case.acks}, the follower {FOLLOWER[case.frozen]}, the leader {LEADER[case.killed]}"


@contextmanager
def leading(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The leader's process, and where it listens; gone at the end of the block."""
    folder.mkdir()
    process, bootstrap = one_broker.started(str(folder), *(f"{name}={value}" for name, value in SETTINGS.items()))
    try:
        yield process, bootstrap
    finally:
        process.kill()
        process.wait()


def ready(case: Case, bootstrap: str, follower: Broker) -> tuple[one_broker.Load, set[str]]:
    """A producer with a follower in sync, which then stands still if it is to; what was acknowledged so far."""
    if not send(producer(bootstrap), TOPIC, ["in sync"]):  # with acks=all it is acknowledged when the follower has it
        raise TimeoutError(f"the follower was not in sync within {PATIENCE_S} s")
    clock = SystemClock()
    while follower.call(lambda: follower.inside_follower.replica.applied) is None:
        clock.sleep_s(LOOK_S)  # it has records, and not yet what makes it a broker of this cluster
    load = one_broker.Load(bootstrap, case.acks)
    load.send(1)
    load.wait(lambda: bool(load.reported))
    if case.frozen:
        follower.faults.freeze()
    return load, set(load.reported)


def loaded(load: one_broker.Load, load_s: float) -> tuple[float, int]:
    """Send for so long; the seconds that it was, and how many were acknowledged by then."""
    clock = SystemClock()
    until_s = (began_s := clock.monotonic_s()) + load_s
    load.wait(lambda: load.sent_more() and clock.monotonic_s() >= until_s)
    return clock.monotonic_s() - began_s, len(load.reported)


def kill(load: one_broker.Load, process: subprocess.Popen[str]) -> None:
    """While messages are sent."""
    killer = threading.Thread(target=one_broker.stop_and_kill, args=(process,))
    killer.start()
    load.wait(lambda: load.sent_more() and not killer.is_alive())
    process.wait()


def left(case: Case, acknowledged: set[str], bootstrap: str, follower: Broker) -> set[str]:
    """What readers find: at the promoted follower, or at the leader once the follower goes on and has caught up."""
    if case.killed:
        follower.promote()
        return there(follower.bootstrap)
    follower.faults.thaw()
    clock = SystemClock()
    until_s = clock.monotonic_s() + PATIENCE_S
    while not acknowledged <= (kept := there(bootstrap)) and clock.monotonic_s() < until_s:
        clock.sleep_s(LOOK_S)
    return kept


def there(bootstrap: str) -> set[str]:
    """The numbers of the messages that a reader gets."""
    return {value.split()[0] for value in read(bootstrap, TOPIC)}

"""The main job with its driver killed -9, again and again at random moments: are the tables those of a run without kills?

1. a broker is started, or a broker and PostgreSQL; the replay is sent to a topic, whole         grounds.py
2. a run that nobody kills; what it wrote is checked against the log, and is the measure         check.py
3. a run that is killed; each time the same command goes on, and the last one comes to its end
4. all that the two wrote, in the order in which it was written, is compared byte for byte       tables.py

The topic is whole before the first run, so that both read the same batches: what a batch takes of a topic that grows
depends on the moment, and the tables would differ in when a result was written, though not in what.

Rule 1: a moment is a batch and a part of its time. A kill whose batch was begun before the last kill falls into the start
        of the driver instead.
Rule 2: killed is the driver with all that it started, at once; none of them can clean up.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from waterclock.clock import Clock, SystemClock
from waterclock.errors import WaterclockError
from waterclock.examples.ends import ended_as_by_ctrl_c, kill_all
from waterclock.examples.folders import alone_in
from waterclock.spark.checkpoint.folder import Checkpoint

from .check import Verdict, check
from .grounds import GROUNDS, Ground, empty
from .log import read_log

_MAIN = "import sys; from waterclock.cli import main; sys.exit(main())"
_LOOK_EVERY_S = 0.01
_TO_SPARE = 2  # no kill is meant for the last batches: the driver might come to its end first
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out. `equal`: both runs left the same bytes; `right`: both have the answer of the log."""

    ground: str
    seed: int
    kills: int
    batches: int
    rows: int
    sha256: str
    equal: bool
    right: bool
    seconds: float


def demo(folder: Path, on: str, kills: int, seed: int, as_json: bool = False) -> int:
    """The command `waterclock demo kills`; 0 when the tables are equal and right, 1 when they are not."""
    with alone_in(folder), ended_as_by_ctrl_c():
        empty(folder)
        outcome = compare(folder, on, kills, seed, (lambda line: None) if as_json else print_at_once)
    if as_json:
        print(json.dumps(asdict(outcome), indent=1))
    return 0 if outcome.equal and outcome.right else 1


def print_at_once(line: str) -> None:
    """Say it now, though stdout may be a pipe."""
    print(line, flush=True)


def compare(folder: Path, on: str, kills: int, seed: int, say: Say, clock: Clock | None = None) -> Outcome:
    """Run the main job in the empty `folder` without and with `kills`; `say` is called at each step."""
    clock = clock or SystemClock()
    began_s = clock.monotonic_s()
    with GROUNDS[on](folder, seed, say) as ground:
        with Life(ground, "untouched", clock) as untouched:
            untouched.to_the_end()
        clean = check(read_log(), ground.tables("untouched"))
        say(f"a run without kills: {untouched.begun} batches in {untouched.seconds:.1f} s; {_words(clean)}")
        _kill_again_and_again(ground, untouched, moments(random.Random(seed), untouched.begun, kills), say, clock)
        killed = check(read_log(), ground.tables("killed"))
        difference = first_difference(ground.tables("untouched").dump(), ground.tables("killed").dump())
        rows, digest = fingerprint(ground.tables("killed").dump())
    say(f"{kills} kills later: {_words(killed)}")
    say(difference or f"equal, byte for byte: {rows:,} rows, SHA-256 {digest}")
    right = clean.right and killed.right
    seconds = round(clock.monotonic_s() - began_s, 1)
    return Outcome(on, seed, kills, untouched.begun, rows, digest, difference is None, right, seconds)


def moments(chance: random.Random, batches: int, kills: int) -> list[float]:
    """When to kill, in batches: 2.3 is batch 2 begun, and three tenths of a batch's time later."""
    return sorted(chance.uniform(0, max(1, batches - _TO_SPARE)) for _ in range(kills))


def first_difference(clean: Iterable[str], killed: Iterable[str]) -> str | None:
    """Where two dumps part, in words; None where they are equal."""
    for number, (one, other) in enumerate(zip_longest(clean, killed), 1):
        if one != other:
            return f"NOT equal: row {number} of the run without kills is {one}, of the killed one {other}"
    return None


def fingerprint(dump: Iterable[str]) -> tuple[int, str]:
    """How many rows a dump has, and the SHA-256 of all of it."""
    digest, rows = hashlib.sha256(), 0
    for line in dump:
        digest.update(f"{line}\n".encode())
        rows += 1
    return rows, digest.hexdigest()


def _kill_again_and_again(ground: Ground, untouched: Life, when: list[float], say: Say, clock: Clock) -> None:
    for number, moment in enumerate(when, 1):
        with Life(ground, "killed", clock) as life:
            life.kill_at(moment, untouched)
        say(f"kill {number} of {len(when)}: after {life.seconds:.1f} s, with {life.begun} batches begun")
    with Life(ground, "killed", clock) as last:
        last.to_the_end()
    say(f"the last run comes to its end: {last.begun} batches, {last.seconds:.1f} s")


class Life:
    """One life of the driver: `waterclock run`, in a group of processes of its own; it does not outlive the block."""

    def __init__(self, ground: Ground, name: str, clock: Clock) -> None:
        self._clock, self._checkpoint = clock, Checkpoint(ground.folder(name) / "checkpoint")
        self._before = self.begun
        self._log = ground.folder(name) / "driver.log"
        command = [sys.executable, "-P", "-c", _MAIN, "run", str(ground.file(name)), "--json"]
        self._began_s, self.seconds = clock.monotonic_s(), 0.0
        self.start_s = 0.0  # until the first batch of this life was begun
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._kill()

    @property
    def begun(self) -> int:
        """How many batches all lives together have begun."""
        last = self._checkpoint.last_batch()
        return 0 if last is None else last + 1

    @property
    def batch_s(self) -> float:
        """How long a batch of this life took, the end of the driver included."""
        return (self.seconds - self.start_s) / max(1, self.begun - self._before)

    def to_the_end(self) -> None:
        """Wait until it ends by itself; WaterclockError where it fails."""
        self._await(lambda: self.begun > self._before)
        self.start_s = self._lived_s()
        code = self._process.wait()
        self.seconds = self._lived_s()
        if code != 0:
            raise WaterclockError(f"the driver ended with {code}; its last words are in {self._log}")

    def kill_at(self, moment: float, measure: Life) -> None:
        """Kill it at that moment of all batches, as long as they took in the life of `measure`."""
        batch, part = divmod(moment, 1)
        pace_s = measure.batch_s if self.begun <= batch else measure.start_s
        self._await(lambda: self.begun > batch)
        self._clock.sleep_s(part * pace_s)
        if self._process.poll() is not None:
            raise WaterclockError(f"the driver ended before it was to be killed; its last words are in {self._log}")
        if self._kill() != -signal.SIGKILL:
            raise WaterclockError(f"the driver ended before the kill reached it; its last words are in {self._log}")
        self.seconds = self._lived_s()

    def _kill(self) -> int:
        kill_all(self._process.pid)
        return self._process.wait()

    def _await(self, condition: Callable[[], bool]) -> None:
        while not condition() and self._process.poll() is None:
            self._clock.sleep_s(_LOOK_EVERY_S)

    def _lived_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s


def _words(verdict: Verdict) -> str:
    return (
        f"{verdict.recreated} penalties re-created, {verdict.missing} missing, {verdict.extra} extra, "
        f"{verdict.unpaid_found} of {verdict.unpaid_expected} unpaid, {verdict.unpaid_wrong} wrong, "
        f"{verdict.out_of_order_cases} fines out of order, {verdict.others_wrong} other results wrong"
    )

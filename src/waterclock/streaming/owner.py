"""One run at a time on a checkpoint: a lock of the system's, which ends with its process, however that ends; or a lease.

Behind a URI no system has locks. There it is a lease, and a number for who has it:

    waterclock.owners/000000000007    epoch 7: whose it is; written again every RENEW_S seconds by who holds it

Taking a lease, in numbered steps:

    1. look at the largest epoch: is it held? A run of this machine that is gone, one that let go, and one that did not
       write it for LEASE_S seconds by the store's own clock hold it no more
    2. make the next epoch, only if it is new: of two runs the store refuses one
    3. write it again from time to time, until it is let go, or a larger one is there

Rule 1: a lease only says that another run is there. A run that stood still wakes up and does not know that its lease ran
        out; so the epoch goes into the sink, whose transactions judge (sinks/ledger.py). If a sink keeps none, a warning
        says so.
Rule 2: no clock of ours is compared with another one: a file of this run's own says what time the store has.
Rule 3: epochs outlive `--fresh`: a smaller one never comes back.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from waterclock.clock import Clock, SystemClock
from waterclock.disk import FolderLock, WithoutLocks, boot
from waterclock.errors import UsageError, WaterclockError
from waterclock.sinks.ledger import Epoch
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.places.place import Place, names_in

log = logging.getLogger(__name__)
OWNERS = "waterclock.owners"
LEASE_S = 30.0
RENEW_S = 5.0
_LOOK_EVERY_S = 0.5
_LOOKS, _LOOK_AGAIN_S = 5, 0.02


class Lease:
    """The right to work on the checkpoint at `path`, which lies behind a URI."""

    def __init__(self, path: HadoopPath) -> None:
        self._path, self._folder = path, path / OWNERS
        self._clock: Clock = SystemClock()
        process = os.getpid()
        self._mine = {
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": process,
            "started": _started(process),
            "run": uuid4().hex,
        }
        self._epoch: Epoch | None = None
        self._ended = Event()
        self._renewing: Thread | None = None

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that this run has; None if it has none."""
        return self._epoch

    def take(self) -> None:
        """Have it, if there is a folder; again is the same. UsageError if another run has it, or took it over."""
        if self._epoch is not None:
            self.check()
        elif self._path.is_dir():
            self._folder.make_folder()
            last = self._largest()
            before = self._held_by(last) if last else None  # 1
            lineage = (before or {}).get("lineage") or uuid4().hex
            holder = {**self._mine, "lineage": lineage}
            if not self._file(last + 1).create_new(_encoded(holder)):  # 2
                raise self._refused(_read(self._file(last + 1)))
            epoch = self._epoch = Epoch(lineage, last + 1)
            ended = self._ended = Event()
            renew = (epoch, ended, holder)  # its own: it may begin when the lease is let go again
            self._renewing = Thread(target=self._renew, args=renew, name="lease of the checkpoint", daemon=True)
            self._renewing.start()  # 3
            with suppress(WaterclockError, OSError):  # the next one forgets them
                self._forget_before(last)

    def check(self) -> None:
        """UsageError if another run took it over while this one stood still."""
        if self._epoch is not None and self._largest() > self._epoch.number:
            raise UsageError(
                f"another run has taken the checkpoint {self._path} over, since nothing was heard of this one for "
                f"{LEASE_S:.0f} s: this one writes nothing more"
            )

    def let_go(self) -> None:
        """Give it back; if that cannot be said any more, it runs out."""
        epoch, self._epoch = self._epoch, None
        self._ended.set()
        if self._renewing is not None:
            self._renewing.join(RENEW_S)
            self._renewing = None
        with suppress(WaterclockError, OSError):
            if epoch is not None and self._largest() == epoch.number:
                self._file(epoch.number).write_whole(
                    _encoded({**self._mine, "lineage": epoch.lineage, "released": True})
                )

    def _held_by(self, number: int) -> Mapping[str, Any]:
        """Who had it, once that one has it no more; UsageError if it is being written."""
        file = self._file(number)
        holder = _read(file)
        if holder.get("released") or _is_gone(holder):
            return holder
        written, until = self._written(file), self._clock.monotonic_s() + LEASE_S - self._age_s(file)
        while self._clock.monotonic_s() < until:
            self._clock.sleep_s(_LOOK_EVERY_S)
            if self._written(file) != written or self._largest() > number:
                raise self._refused(holder)
        return holder

    def _written(self, file: HadoopPath) -> tuple[int, str]:
        with suppress(FileNotFoundError):
            return file.written_ms(), str(_read(file).get("beat"))
        return 0, ""

    def _age_s(self, file: HadoopPath) -> float:
        """How long ago it was written, by the clock of the store (rule 2)."""
        own = self._folder / f".now-{self._mine['run']}"
        own.write_whole(b"")
        now_ms, (then_ms, _) = own.written_ms(), self._written(file)
        own.unlink()
        return max(0.0, (now_ms - then_ms) / 1000) if then_ms else 0.0

    def _refused(self, holder: Mapping[str, Any]) -> UsageError:
        return UsageError(
            f"another run has the checkpoint {self._path} open (on {holder.get('host')}, process {holder.get('process')}): "
            "wait for its end, or stop it. Two at once would write over each other's state"
        )

    def _renew(self, epoch: Epoch, ended: Event, holder: Mapping[str, Any]) -> None:
        beat = 0
        while not ended.wait(RENEW_S):
            beat += 1
            try:
                if self._largest() > epoch.number:
                    log.warning("another run has taken the checkpoint %s over: this one will be refused", self._path)
                    return
                self._file(epoch.number).write_whole(_encoded({**holder, "beat": beat}))
            except (WaterclockError, OSError) as error:
                log.warning("the lease of the checkpoint %s could not be renewed: %s", self._path, error)

    def _largest(self) -> int:
        return max((int(name) for name in names_in(self._folder) if name.isdecimal()), default=0)

    def _file(self, number: int) -> HadoopPath:
        return self._folder / f"{number:012d}"

    def _forget_before(self, number: int) -> None:
        for name in names_in(self._folder):
            if name.isdecimal() and int(name) < number:
                (self._folder / name).unlink()


def _encoded(what: Mapping[str, Any]) -> bytes:
    return json.dumps(what).encode() + b"\n"


def _read(file: HadoopPath) -> dict[str, Any]:
    """What a file of an epoch says; nothing if it is gone, or none of ours.

    A local file is not there, or not whole, for a moment while its holder writes it again: it is looked at a few times.
    """
    for _ in range(_LOOKS):
        with suppress(WaterclockError, OSError, ValueError):
            found = json.loads(file.read_bytes())
            return found if isinstance(found, dict) else {}
        SystemClock().sleep_s(_LOOK_AGAIN_S)
    return {}


# Who is this -----------------------------------------------------------------------------------------------------


def _machine() -> str | None:
    """A name of this start of this machine, and of its set of process ids, that no other has; None if that is not known."""
    with suppress(OSError):
        start = boot()
        return None if start is None else f"{start} {os.readlink('/proc/self/ns/pid')}"
    return None


def _started(process: int) -> str | None:
    """When a process of this machine started, in the kernel's count; None if there is none."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def _is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether a run was one of this machine, and its process is there no more."""
    if holder.get("machine") is None or holder["machine"] != _machine():
        return False
    return _started(int(holder.get("process", 0))) != holder.get("started")


LOCK = "waterclock.lock"


class Owner:
    """The right to work on the checkpoint at `path`. A file system without locks gives it to everybody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FolderLock(path, LOCK, WithoutLocks.ALLOW)

    @property
    def epoch(self) -> Epoch | None:
        """None: a lock ends with its process, so no run is ever taken over."""
        return None

    def check(self) -> None:
        """Nothing: nobody takes a lock over."""

    def take(self) -> None:
        """Have it, if there is a folder; again is the same. UsageError if another run has it."""
        if not self._path.is_dir():
            return
        try:
            self._lock.take()
        except BlockingIOError as error:
            raise UsageError(
                f"another run has the checkpoint {self._path} open: wait for its end, or stop it. Two at once "
                "would write over each other's state"
            ) from error

    def let_go(self) -> None:
        """Give it back."""
        self._lock.release()


def is_free(path: Place) -> bool:
    """Whether nobody works on the checkpoint at `path` now."""
    owner = owner_of(path)
    try:
        owner.take()
    except UsageError:
        return False
    owner.let_go()
    return True


def owner_of(path: Place) -> Owner | Lease:
    """The right to work on the checkpoint at `path`, not taken yet."""
    return Lease(path) if isinstance(path, HadoopPath) else Owner(Path(str(path)))

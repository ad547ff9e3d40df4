"""Damage of a data folder: a file of it is flipped, cut, zeroed, deleted or set back; then a broker is started over it.

    whole      it starts and everything is there: what was damaged was not needed, or was made anew
    refused    it ends, and its sentence names the file or its folder
    told       something is gone, and a line at the start names the file, its folder or its partition
    at reading it starts, and clients get an error where something cannot be read
    silent     something is gone or changed, and nobody says so           a violation
    unnamed    it ends, and nobody can know over which file              a violation
    traceback  it ends, or goes on, with a traceback                     a violation
    hangs      it is not ready within a minute, or does not serve         a violation
    garbage    it gives a client bytes at which the client crashes        a violation

Rule 1: each trial has a copy of its own of a folder that a broker left, by kill -9 or by SIGTERM; what a broker over an
    undamaged copy shows is the measure.
Rule 2: before they are compared, open transactions are aborted by a new producer of each transactional id.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from tests.broker.consistency.cluster import SETTINGS
from tests.broker.consistency.crew import IDS
from tests.broker.consistency.facts import COMMITTED, UNCOMMITTED
from tests.broker.consistency.logs import Stalled, committed, everything, settled
from tests.broker.consistency.members import READERS
from tests.broker.consistency.node import Node, NotStarted
from tests.broker.consistency.transforming import GROUP
from tests.broker.consistency.worker import PARTITIONS, QUICK
from tests.processes import alone

DAMAGES = ("flip a bit", "flip a bit near the end", "cut", "cut to nothing", "zero some", "delete", "older copy")
BAD = ("silent", "unnamed", "traceback", "hangs", "garbage")
READ_S = 15.0


class Trial(NamedTuple):
    """What became of a damaged folder."""

    file: str
    kind: str  # of file, and how the broker ended before
    damage: str
    outcome: str
    words: str


class View(NamedTuple):
    """What a broker over a folder shows to clients."""

    logs: dict[str, list[list[Any]]]
    offsets: dict[str, dict[str, int]]


def files(folder: Path) -> list[Path]:
    """The files that may be damaged, by their kinds: each kind has the same chance, however many there are."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]


def kind_of(path: Path) -> str:
    """The kind of a file: its name without numbers."""
    return re.sub(r"^\d+", "N", path.name)


def choose(folder: Path, dice: random.Random) -> Path:
    found = files(folder)
    kind = dice.choice(sorted({kind_of(path) for path in found}))
    return dice.choice([path for path in found if kind_of(path) == kind])


def apply(path: Path, damage: str, dice: random.Random, older: Path | None) -> str:
    """What was done, to the byte; nothing where it would change nothing."""
    data = bytearray(path.read_bytes())
    if damage == "delete":
        path.unlink()
        return f"{len(data)} bytes"
    if damage == "older copy":
        if older is None or not older.exists() or older.read_bytes() == bytes(data):
            return ""
        shutil.copy(older, path)
        return f"{older.stat().st_size} of {len(data)} bytes"
    if not data:
        return ""
    at = dice.randrange(len(data))
    if damage.startswith("flip"):
        at = at if damage == "flip a bit" else max(0, len(data) - 1 - at % 200)
        data[at] ^= 1 << dice.randrange(8)
    elif damage.startswith("cut"):
        at = at if damage == "cut" else 0
        del data[at:]
    else:
        data[at : at + 100] = bytes(len(data[at : at + 100]))
    if bytes(data) == path.read_bytes():
        return ""
    path.write_bytes(data)
    return f"at {at} of {path.stat().st_size}"


def view(address: str) -> View:
    """Everything that clients can be shown, once no transaction is open; Stalled where something is not."""
    try:
        for name in IDS:
            producer = Producer({"bootstrap.servers": address, "transactional.id": name, **QUICK})
            producer.init_transactions(READ_S)
        settled(address, *PARTITIONS, patience_s=READ_S)
        logs = {
            one: sorted(everything(address, one, *PARTITIONS, patience_s=READ_S)) for one in (COMMITTED, UNCOMMITTED)
        }
        offsets = {GROUP: committed(address, GROUP, "in"), READERS: committed(address, READERS, "lists")}
    except KafkaException as error:
        raise Stalled(str(error)) from None  # librdkafka's errors cannot go from one process to another
    return View(logs, offsets)


def shown(folder: Path) -> tuple[View, list[str]]:
    """What a broker shows over a copy of `folder`, and what it said."""
    copy = Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-measure"), dirs_exist_ok=True))
    node = Node(copy, SETTINGS)
    try:
        node.start()
        return alone(view, node.address), node.said
    finally:
        node.end()
        shutil.rmtree(copy)


def tried(trial: Path, damaged: Path, measure: View, usual: Iterable[str]) -> tuple[str, str]:
    """The outcome of a start over `trial`, a copy in which `damaged` is damaged, and words about it."""
    node = Node(trial, SETTINGS)
    try:
        node.start()
        return _judged(node, damaged, measure, set(usual))
    except NotStarted as error:
        if error.code is not None and error.code >= 0 and "Traceback" not in error.said:
            return ("refused" if named(error.said, damaged) else "unnamed"), error.said
        return ("hangs" if error.code is None or error.code < 0 else "traceback"), error.said
    finally:
        node.end()


def _judged(node: Node, damaged: Path, measure: View, usual: set[str]) -> tuple[str, str]:
    difference = ""
    try:
        # in a process of its own: librdkafka asserts that a batch is whole, and ends the process that reads it
        difference = differences(measure, alone(view, node.address))
    except BrokenProcessPool:
        return "garbage", "".join(line for line in node.said if line not in usual)
    except Stalled as error:
        difference = f"at reading: {error}"
    said = "".join(line for line in node.said if line not in usual)
    if "Traceback" in said:
        return "traceback", f"{difference}\n{said}"
    if not difference:
        return "whole", said
    if named(said, damaged):
        return "told", f"{difference}\n{said}"
    if difference.startswith("at reading"):
        return (
            "at reading" if "not read to their ends" in difference and "None" not in difference else "hangs"
        ), difference
    return "silent", f"{difference}\n{said}"


def named(said: str, damaged: Path) -> bool:
    """Whether a sentence says which file it is about."""
    partition = damaged.parent.name.rsplit(".", 1)[0]
    return any(name in said for name in (damaged.name, damaged.parent.name, partition) if name)


def differences(measure: View, found: View) -> str:
    """What clients are shown otherwise than they should; nothing where all is the same."""
    words = []
    for isolation, log in measure.logs.items():
        there, now = {tuple(row) for row in log}, {tuple(row) for row in found.logs[isolation]}
        gone, new = sorted(there - now), sorted(now - there)
        if gone or new:
            words.append(f"{isolation}: {len(gone)} gone {gone[:2]}, {len(new)} new {new[:2]}")
    for group, offsets in measure.offsets.items():
        if found.offsets[group] != offsets:
            words.append(f"{group}: {found.offsets[group]} for {offsets}")
    return "; ".join(words)

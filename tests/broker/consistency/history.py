"""What clients did and what they were told: one append-only file a process, one line of JSON an event.

    invoke -> [commit] -> ok | fail | unknown

Rule 1: a line is written before what it tells is asked of the broker, or after it was answered; never both in one.
Rule 2: a line is one write to a file that is only appended to: a process that is killed leaves whole lines, and at most
    one torn at the end, which counts as not written.
Rule 3: times are the machine's monotonic nanoseconds, the same for all processes.
Rule 4: what has no completion, or "unknown", may have happened or not, at any later time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waterclock.clock import SystemClock

NEVER_NS = 1 << 62  # when something ended that has no completion


class Writer:
    """The history of this process, in `folder`, under the process's name."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._file = os.open(folder / f"{process}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._clock, self._count = SystemClock(), 0

    def begin(self, kind: str, **fields: Any) -> int:
        """Something is about to be asked; its number among this process's."""
        self._count += 1
        self._write(self._count, "invoke", {"kind": kind, **fields})
        return self._count

    def committing(self, number: int) -> None:
        """From now on the transaction may be committed."""
        self._write(number, "commit", {})

    def end(self, number: int, outcome: str, **fields: Any) -> None:
        """What was answered: ok, fail (it did not happen and never will) or unknown."""
        self._write(number, outcome, fields)

    def tell(self, kind: str, **fields: Any) -> None:
        """Something that has no beginning of its own."""
        self.end(self.begin(kind), "ok", **fields)

    def _write(self, number: int, step: str, fields: dict[str, Any]) -> None:
        row = {"n": number, "t": self._clock.monotonic_ns(), "step": step, **fields}
        os.write(self._file, json.dumps(row, separators=(",", ":")).encode() + b"\n")


@dataclass
class Op:
    """One operation of a client, from its invocation to its completion."""

    process: str
    number: int
    kind: str
    begin_ns: int
    end_ns: int = NEVER_NS
    outcome: str = "unknown"
    commit_ns: int | None = None  # when the commit was asked for; None: never
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.fields.get(name, default)

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    def __str__(self) -> str:
        end = "..." if self.end_ns == NEVER_NS else f"{self.end_ns / 1e9:.3f}"
        shown = {name: value for name, value in self.fields.items() if name != "rows"}
        words = json.dumps(shown, separators=(",", ":"))
        return f"{self.process}#{self.number} {self.kind} {self.begin_ns / 1e9:.3f}-{end} {self.outcome} {words[:600]}"


class History:
    """The operations of all processes, in the order in which they began."""

    def __init__(self, ops: Iterable[Op] = ()) -> None:
        self.ops = sorted(ops, key=lambda op: op.begin_ns)
        self._of_kind: dict[str, list[Op]] = {}
        for op in self.ops:
            self._of_kind.setdefault(op.kind, []).append(op)

    def of(self, *kinds: str) -> list[Op]:
        """Those of some kinds; of one kind in the order in which they began."""
        return [op for kind in kinds for op in self._of_kind.get(kind, ())]

    @classmethod
    def load(cls, folder: Path) -> History:
        return cls(op for path in sorted(folder.glob("*.jsonl")) for op in read(path))


def read(path: Path) -> Iterator[Op]:
    """The operations of one process."""
    ops: dict[int, Op] = {}
    for line in path.read_bytes().split(b"\n")[:-1]:  # a torn line has no end
        row = json.loads(line)
        number, at_ns, step = row.pop("n"), row.pop("t"), row.pop("step")
        if step == "invoke":
            ops[number] = Op(path.stem, number, row.pop("kind"), at_ns, fields=row)
        elif step == "commit":
            ops[number].commit_ns = at_ns
        else:
            op = ops[number]
            op.end_ns, op.outcome = at_ns, step
            op.fields.update(row)
    yield from ops.values()

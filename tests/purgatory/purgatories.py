"""The two purgatories: the source as it stands with Python's own lock, and compiled where it was built."""

from __future__ import annotations

from typing import Any

from waterclock import ManualClock, Timer
from waterclock.purgatory import COMPILED, completions, delayed, waiting
from waterclock.purgatory.lock import PlainLock

delayed.Lock = PlainLock  # type: ignore[misc,assignment]
delayed.Completions = completions.Completions
delayed.new_waker = waiting.Waker
delayed._NOWHERE.__init__("nowhere", None)  # type: ignore[misc]

KINDS: dict[str, Any] = {"plain": delayed}
if COMPILED:
    from waterclock.purgatory import _delayed

    KINDS["compiled"] = _delayed


class Bench:
    """A purgatory of one kind under a clock turned by hand, and a diary of what its operations did."""

    def __init__(self, kind: Any, **options: Any) -> None:
        self.kind = kind
        self.timer = Timer(clock=ManualClock())
        self.errors: list[tuple[str, Any]] = []
        options.setdefault("on_error", lambda error, op: self.errors.append((repr(error), op)))
        self.purgatory = kind.Purgatory("test", self.timer, **options)
        self.diary: list[tuple[Any, ...]] = []
        self.done: set[str] = set()  # names of operations whose condition holds

    def make(self, name: str, timeout_s: float | None = None, **callables: Any) -> Any:
        """An operation that is over when its name is in `done`, and writes down what happens to it."""

        def try_complete(op: Any) -> bool:
            self.diary.append(("try", name))
            return name in self.done

        return self.kind.DelayedOperation(
            callables.get("try_complete", try_complete),
            callables.get("on_complete", lambda op: self.diary.append(("complete", name, op.outcome))),
            timeout_s,
            callables.get("on_expire", lambda op: self.diary.append(("expire", name, op.outcome))),
        )

    def watch(self, name: str, *keys: Any, timeout_s: float | None = None, **callables: Any) -> Any:
        """An operation that waits under these keys; the diary begins after it."""
        op = self.make(name, timeout_s, **callables)
        assert self.purgatory.try_complete_else_watch(op, keys) is False
        self.diary.clear()
        return op

    def counts(self) -> tuple[int, ...]:
        """watched, delayed, completed, expired, cancelled"""
        told = self.purgatory.statistics()
        return told.watched, told.delayed, told.completed, told.expired, told.cancelled

"""When a partition's files are written down: a checkpoint each so often, a step at a time; an owner's, or a follower's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from waterclock.clock import Clock

_DONE: Final = object()


class Checkpoints:
    """Those of one partition. `make` begins one and gives its steps. `is_changed`: there is something for the next one."""

    def __init__(self, make: Callable[[], Iterator[None]], every_ns: int, clock: Clock) -> None:
        self._make = make
        self._every_ns = every_ns
        self._clock = clock
        self._began_ns = clock.monotonic_ns()
        self._steps: Iterator[None] | None = None  # of the one that is under way
        self.is_changed = False

    @property
    def is_time(self) -> bool:
        """Whether the last one began long enough ago, or was passed over."""
        return self._clock.monotonic_ns() - self._began_ns >= self._every_ns

    @property
    def is_under_way(self) -> bool:
        return self._steps is not None

    def begin(self) -> None:
        """Begin one, unless there is nothing for it, or one is under way."""
        self._began_ns = self._clock.monotonic_ns()
        if self.is_changed and self._steps is None:
            self.is_changed = False
            self._steps = self._make()

    def step(self) -> bool:
        """Go on with the one that is under way by a step; whether it is over. OSError if the disk refuses it: then the next
        one has all of it."""
        steps, self._steps = self._steps, None
        if steps is None:
            return False
        try:
            if next(steps, _DONE) is _DONE:
                return True
        except OSError:
            self.is_changed = True
            raise
        self._steps = steps
        return False

    def finish(self) -> None:
        """End the one that is under way, and make another one if there is something for it. OSError if the disk refuses."""
        for steps in (self._steps or (), self._make() if self.is_changed else ()):
            for _ in steps:
                pass
        self._steps, self.is_changed = None, False

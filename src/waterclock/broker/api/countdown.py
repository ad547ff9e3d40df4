"""An answer about several things, each settled in its own time: sent when the last of them is."""

from __future__ import annotations

from collections.abc import Callable


class Countdown:
    """Calls `answer()` once `settled` was called `count` times; at once if there is nothing to wait for."""

    def __init__(self, count: int, answer: Callable[[], None]) -> None:
        self._left, self._answer = count + 1, answer
        self.settled()

    def settled(self, done: bool = True) -> None:
        """One more of them is."""
        self._left -= 1
        if not self._left:
            self._answer()

    def after(self, failed: Callable[[], None]) -> Callable[[bool], None]:
        """A `then` for the store: `failed()` is called before this one is settled, if the disk refused it."""

        def then(done: bool) -> None:
            if not done:
                failed()
            self.settled()

        return then

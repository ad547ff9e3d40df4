"""Topics by number: a row has room for two bytes, not for a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from waterclock.errors import UsageError

MOST_TARGETS: Final = 65_535  # the last number is `slots.OTHER`


class Targets:
    """The topics that messages of a partition were ever for. A number is given once.

    >>> targets = Targets(["mails"])
    >>> targets.numbers(["reminders", "mails"]), targets.names
    ([1, 0], ['mails', 'reminders'])
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def numbers(self, names: Sequence[str]) -> list[int]:
        """The number of each; a new topic gets the next one. UsageError if there are too many."""
        for name in sorted({*names} - self._numbers.keys()):
            if len(self.names) == MOST_TARGETS:
                raise UsageError(
                    f"one partition has messages for {MOST_TARGETS} topics already, and cannot take one for {name}: "
                    "use more partitions"
                )
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return [self._numbers[name] for name in names]

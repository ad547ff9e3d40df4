"""Whether a disk takes what a partition's files are given, and when it is asked again. No Kafka client in this file.

Rule 1: a disk that refuses ends nothing. What is due is delivered all the same: what that settles is known in memory, and
        stands in Kafka. What comes in waits: the input is the log, and loses nothing.
Rule 2: it is said at WARNING, with the path and the number of bytes that it was to take: once a minute, while it
        lasts. That it takes them again is said too.
Rule 3: it is asked again after `AGAIN_NS`, not at every step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from waterclock.clock import WallClock
from waterclock.errors import EnvironmentMissing
from waterclock.relay.store import DiskRefused

log = logging.getLogger("waterclock.relay")
AGAIN_NS: Final = 1_000_000_000
SAID_EVERY_NS: Final = 60_000_000_000


class DiskSpace:
    """That of the partition `name`. `refusals`: how often the disk refused. `wanted`: the bytes that it refused last, 0
    where it has taken everything since."""

    def __init__(self, name: str, clock: WallClock) -> None:
        self._name, self._clock = name, clock
        self._again_ns = self._say_ns = clock.monotonic_ns()
        self.refusals = self.wanted = 0
        self.is_refusing = self._was_said = False

    @property
    def is_time(self) -> bool:
        """Whether the disk may be asked for something."""
        return not self.is_refusing or self._clock.monotonic_ns() >= self._again_ns

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Do something that writes. That the disk refuses is noted, and goes no further."""
        try:
            yield
        except OSError as error:
            now_ns = self._clock.monotonic_ns()
            self.is_refusing, self._again_ns = True, now_ns + AGAIN_NS
            self.refusals, self.wanted = self.refusals + 1, error.wanted if isinstance(error, DiskRefused) else 0
            if now_ns >= self._say_ns:
                self._was_said, self._say_ns = True, now_ns + SAID_EVERY_NS
                log.warning(
                    "%s: the disk does not take %d bytes for %s: %s. New requests, cancels too, wait in the input until it "
                    "does; what is due is delivered. Make room on that disk.",
                    self._name,
                    self.wanted,
                    error.filename,
                    error.strerror,
                )

    def took(self) -> None:
        """What was to be written was written."""
        if self._was_said:
            log.warning("%s: the disk takes what is written again", self._name)
        self.is_refusing = self._was_said = False
        self.wanted = 0


def no_disk(name: str, error: OSError) -> EnvironmentMissing:
    """What is said where the files of `name` cannot even be opened."""
    file = error.filename or "a file"
    return EnvironmentMissing(
        f"The disk refuses the files of {name}: {error.strerror} ({file}). Make room, or mend it."
    )

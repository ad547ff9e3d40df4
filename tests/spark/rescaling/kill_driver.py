"""What carries a state over and dies behind a step of carry.py: this process by a signal (`python kill_driver.py STEP
rescale PIPELINE.toml ...`), or a test's own as an exception."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from waterclock import cli
from waterclock.spark.checkpoint import state_files
from waterclock.spark.rescaling import carry

# what is called last before a step of carry.py is over
STEPS = {
    2: (state_files, "begin"),
    3: (carry, "lay_down"),
    4: (carry.Carry, "copy"),
    5: (state_files, "carried_from"),
    6: (state_files, "carried_over"),
    7: (state_files, "give_sink"),
}


class Death(BaseException):
    """The end of a process, as an exception."""


def death_behind(step: int, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    """Whoever comes to the end of that step dies there."""
    return death_at(*STEPS[step], monkeypatch)


@contextmanager
def death_at(place: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever comes to the end of that call dies there."""
    real = getattr(place, name)

    def dying(*arguments: Any, **more: Any) -> None:
        real(*arguments, **more)
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(place, name, dying)
        with pytest.raises(Death):
            yield


def main(step: int, *command: str) -> int:
    if step:
        place, name = STEPS[step]
        real = getattr(place, name)

        def dying(*arguments: Any) -> None:
            real(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(place, name, dying)
    return cli.main(["state", *command])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))

"""A local pipeline that kills itself: `python crash_driver.py PIPELINE.toml STEP COUNT`.

SIGKILL when STEP is passed for the COUNT-th time; with the step `random`, after so many milliseconds of processor; with
`never`, not at all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import closing
from typing import Any

from waterclock.local import pipeline, snapshots
from waterclock.local.command import configured
from waterclock.streaming.toml.config import load

STEPS = ("taken", "begun", "looked", "written", "committed", "kept", "replayed")


class Fate:
    """Counts how often a step is passed."""

    def __init__(self, step: str, count: int) -> None:
        self._step, self._left = step, count

    def passes(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def behind(owner: Any, name: str, fate: Fate, step: str) -> None:
    """`step` is passed whenever the function `name` of `owner` has returned."""
    function = getattr(owner, name)

    def called(*arguments: Any, **more: Any) -> Any:
        value = function(*arguments, **more)
        fate.passes(step)
        return value

    setattr(owner, name, called)


def watch(until_s: float) -> None:
    while time.process_time() < until_s:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    file, step, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pipeline.turns = lambda *_: 1  # a bucket with each batch
    fate = Fate(step, count)
    with closing(configured(load(file))) as made:
        for sink in (outlet.sink for outlet in made._outlets._all):
            for name, passed in (
                ("begin", "begun"),
                ("is_applied", "looked"),
                ("write", "written"),
                ("commit", "committed"),
            ):
                if name != "begin" or step == "begun":
                    behind(sink, name, fate, passed)
        behind(made._source, "take", fate, "taken")
        behind(snapshots.Snapshots, "write", fate, "kept")
        behind(pipeline.LocalPipeline, "_replay", fate, "replayed")
        made.check()
        if step == "random":
            threading.Thread(target=watch, args=(time.process_time() + count / 1000,), daemon=True).start()
        made.run()
        print(made.replayed)


if __name__ == "__main__":
    main()

"""A contender's process, run to its end: what it printed, and what it took.

Rule 1: one that fails is a line of the result, `error`, and no reason to lose what the others took.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from waterclock.bench.kafka.harness import NotMeasured
from waterclock.errors import WaterclockError


def ended(name: str, command: Sequence[str]) -> dict[str, Any]:
    """The JSON of its last line, with `cpu_s` (all its threads) and `peak_mb`; WaterclockError if it failed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here, not by its object
        said, wrong = _text(out), _text(err)
    if process.returncode:
        raise WaterclockError(f"{name} failed: {(wrong.splitlines() or ['nothing was said'])[-1]}")
    figures: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {**figures, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss * 1024 / 1e6}


def attempted(contender: str, wanted: int, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `run` told, and whether that is `right`: as many `changes` as were wanted, unless it says so itself; or the
    `error` with which it ended (rule 1)."""
    try:
        told = run()
    except (NotMeasured, WaterclockError) as why:
        return {"contender": contender, "error": str(why), "right": False}
    return {"right": told.get("changes") == wanted, **told, "contender": contender}


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace")).strip()

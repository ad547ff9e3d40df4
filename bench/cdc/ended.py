"""A contender's process, run to its end: what it printed, and what it took.

Rule 1: one that fails is a line of the result, `error`, and no reason to lose what the others took.
Rule 2: its memory is looked at while it runs: what the kernel says behind its end is no less than the benchmark's own, from
        which it was forked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from waterclock.bench.kafka.harness import NotMeasured
from waterclock.errors import WaterclockError

_LOOK_S = 0.05


def ended(name: str, command: Sequence[str]) -> dict[str, Any]:
    """The JSON of its last line, with `cpu_s` (all its threads) and `peak_mb`; WaterclockError if it failed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            peak, over = 0, 0
            while not over:
                over, status, used = os.wait4(process.pid, os.WNOHANG)
                peak = max(peak, _peak(process.pid))
                time.sleep(0 if over else _LOOK_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here, not by its object
        said, wrong = _text(out), _text(err)
    if process.returncode:
        raise WaterclockError(f"{name} failed: {(wrong.splitlines() or ['nothing was said'])[-1]}")
    figures: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {**figures, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": peak * 1024 / 1e6}


def attempted(contender: str, wanted: int, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `run` told, and whether that is `right`: as many `changes` as were wanted, unless it says so itself; or the
    `error` with which it ended (rule 1)."""
    try:
        told = run()
    except (NotMeasured, WaterclockError) as why:
        return {"contender": contender, "error": str(why), "right": False}
    return {"right": told.get("changes") == wanted, **told, "contender": contender}


def _peak(pid: int) -> int:
    """Kilobytes that it had at most until now; 0 if it has ended."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace")).strip()

"""A run of tests, and what failed in it once more, alone: a failure that stays is told from one of a busy moment.

    python -m tests.steady OF BOTH RUNS -- OF THE FIRST RUN ALONE        both are options of pytest

Rule 1: a test that fails twice is red. So is a process that died, whatever its test does when it is alone.
Rule 2: a test that passes when it is alone is unsteady. It is printed by name, and written with the date and its error
        into the file that UNSTEADY names (tests/unsteady.txt). What stands there is mended before anything else.
Rule 3: up to `MOST` unsteady tests are forgiven in a run, and in all runs of .ci/run together. One more is red.
Rule 4: BESIDE=8 has that many busy loops run beside the first run. What is red then hangs on the speed of the machine,
        so it is unsteady, and nothing is forgiven.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

MOST = 3
AGAIN = 20  # of more than so many none is run again: a red run is what it is
BUSY = f"import os\nwhile os.getppid() == {os.getpid()}: pass"  # none outlives the run, however that ends


class Failures:
    """What failed, each with the last line of its error, and whether a process died."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self.died = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = re.findall(r"^E +(.+)$", report.longreprtext, re.MULTILINE) or report.longreprtext.splitlines()
            self.errors.setdefault(report.nodeid, lines[0].strip()[:200] if lines else "no error was reported")
            self.died |= report.when == "???"  # so pytest-xdist reports it

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected has no test that could be run again: pytest's own exit code says so."""


def main(words: Sequence[str]) -> int:
    at = words.index("--") if "--" in words else len(words)
    both, first = [*words[:at]], [*words[at + 1 :]]
    beside, failures = int(os.environ.get("BESIDE", "0")), Failures()
    with busy(beside):
        code = int(pytest.main([*both, *first], plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.errors:
        return code
    if failures.died or len(failures.errors) > AGAIN:
        why = "a process died" if failures.died else f"more than {AGAIN} tests failed"
        print(f"red: {why}; nothing is run again")
        return code
    twice = again(both, failures.errors)
    unsteady = {name: error for name, error in failures.errors.items() if name not in twice}
    write(unsteady, f"beside {beside} busy loops" if beside else "")
    for name in failures.errors:
        print(f"{'red, twice' if name in twice else 'unsteady, passes alone'}: {name}")
    print(f"{len(twice)} failed twice, {len(unsteady)} unsteady of {MOST} that are forgiven (tests/unsteady.txt)")
    return int(bool(twice) or len(unsteady) > (0 if beside else MOST))


def again(options: Sequence[str], names: Sequence[str] | dict[str, str]) -> set[str]:
    """Those of `names` that fail once more, in one process of their own, with the seed of the run before."""
    print(f"\n{len(names)} failed; once more, alone:", flush=True)
    failed = set()
    for name in names:  # each in a process of its own: what one leaves behind is nobody else's
        command = [sys.executable, "-m", "pytest", *options, "-q", "--numprocesses", "0", name]
        if subprocess.run(command, env=without_turns(), check=False).returncode:
            failed.add(name)
    return failed


def without_turns() -> dict[str, str]:
    """The environment of a run that chooses its tests: none of them waits for its turn, and none draws anything else."""
    return {
        **os.environ,
        "TEST_MINUTES": "all",
        **({"CAMPAIGN_MINUTES": "1000"} if os.environ.get("CAMPAIGN_MINUTES", "all") != "all" else {}),
    }


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Beside so many processes that only count."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def write(unsteady: dict[str, str], when: str) -> None:
    file = Path(os.environ.get("UNSTEADY") or Path(__file__).with_name("unsteady.txt"))
    day = datetime.now(UTC).date().isoformat()
    with file.open("a") as lines:
        lines.writelines(
            f"{day} {name}  {', '.join(filter(None, (when, error)))}\n" for name, error in unsteady.items()
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

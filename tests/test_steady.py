"""What fails in a run is run once more, alone: what passes then is written down, and forgiven three times."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

# passes when its file is there: so it fails the first time, or as often as it says
TESTS = """
import os
from pathlib import Path

import pytest

@pytest.mark.parametrize("n", range({unsteady}))
def test_unsteady(n):
    file = Path(__file__).with_name(f"ran-{{n}}")
    first = not file.exists()
    file.touch()
    assert not first, "too early"

def test_steady():
    {body}
"""


class Ran(NamedTuple):
    code: int
    told: str
    written: list[str]


def ran(folder: Path, *options: str, unsteady: int = 0, body: str = "...", **environment: str) -> Ran:
    (folder / "test_some.py").write_text(TESTS.format(unsteady=unsteady, body=body))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CAMPAIGN_", "MAKE_", "TEST_", "PYTEST_", "BESIDE"))
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.steady",
            "-c",
            "/dev/null",
            "--rootdir",
            ".",
            "-W",
            "ignore",
            "--",
            *options,
            ".",
        ],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "UNSTEADY": str(folder / "unsteady.txt"), **environment},
        capture_output=True,
        text=True,
        timeout=900,  # for a run that hangs, not for one on a busy machine
        check=False,
    )
    file = folder / "unsteady.txt"
    return Ran(done.returncode, done.stdout + done.stderr, file.read_text().splitlines() if file.exists() else [])


def test_what_passes_is_run_once(tmp_path: Path) -> None:
    code, told, written = ran(tmp_path)
    assert (code, written) == (0, [])
    assert "once more" not in told


def test_what_passes_alone_is_written_with_its_day_and_its_error_and_is_forgiven(tmp_path: Path) -> None:
    code, told, written = ran(tmp_path, unsteady=3)
    assert code == 0, told
    day = datetime.now(UTC).date().isoformat()
    assert written == [f"{day} test_some.py::test_unsteady[{n}]  AssertionError: too early" for n in range(3)]
    assert "unsteady, passes alone: test_some.py::test_unsteady[1]" in told
    assert "0 failed twice, 3 unsteady of 3 that are forgiven" in told


def test_the_fourth_is_not_forgiven(tmp_path: Path) -> None:
    code, told, written = ran(tmp_path, unsteady=4)
    assert (code, len(written)) == (1, 4), told


def test_what_fails_twice_is_red_beside_what_passes_alone(tmp_path: Path) -> None:
    code, told, written = ran(tmp_path, unsteady=1, body="assert 1 == 2")
    assert (code, len(written)) == (1, 1), told
    assert "red, twice: test_some.py::test_steady" in told


def test_of_very_many_none_is_run_again(tmp_path: Path) -> None:
    code, told, written = ran(tmp_path, unsteady=21)
    assert (code, written) == (1, [])
    assert "red: more than 20 tests failed" in told


def test_a_process_that_died_is_red_whatever_its_test_does_alone(tmp_path: Path) -> None:
    body = "os.environ.get('PYTEST_XDIST_WORKER') and os.abort()"
    code, told, written = ran(tmp_path, "--numprocesses", "2", body=body)
    assert (code, written) == (1, []), told
    assert "red: a process died" in told


def test_what_cannot_be_collected_is_red(tmp_path: Path) -> None:
    code, told, _ = ran(tmp_path, body="1 +")
    assert code == pytest.ExitCode.INTERRUPTED, told


def test_beside_busy_loops_nothing_is_forgiven(tmp_path: Path) -> None:
    code, told, written = ran(tmp_path, unsteady=1, BESIDE="2")
    assert code == 1, told
    assert written[0].endswith("beside 2 busy loops, AssertionError: too early")


def test_the_seed_and_the_command_that_repeats_it_stand_beside_a_failure(tmp_path: Path) -> None:
    told = ran(tmp_path, "-p", "tests.campaign", body="assert 1 == 2", MAKE_TARGET="test", CAMPAIGN_SEED="7").told
    assert "CAMPAIGN_SEED=7 make test ARGS='test_some.py -k test_steady'" in told

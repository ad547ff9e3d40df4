"""What a wheel has: all of the tree that it is made of, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.installed.environments import ROOT, Environment, kinds

BUILT_FROM = (".pyx", ".pxd", ".pxi", ".h")  # a source distribution has them, and no wheel
COMPILED = re.compile(r"(.+)\.cpython-\d+-[\w-]+\.so")


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def in_wheel(wheel: Path) -> set[str]:
    """Its files but for its metadata."""
    return {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_a_wheel_has_every_file_that_works_and_no_other(environment: Environment) -> None:
    wanted = {name.removeprefix("src/") for name in tracked("src/waterclock") if not name.endswith(BUILT_FROM)}
    assert {name for name in in_wheel(environment.wheel) if not COMPILED.fullmatch(name)} == wanted


@pytest.mark.parametrize("python", sorted({kind.python for kind in kinds()}))
def test_a_python_that_is_compiled_for_has_its_headers(python: str) -> None:
    """Debian: apt install python3-dev."""
    where = "import sysconfig; print(sysconfig.get_path('include'))"
    include = subprocess.run([python, "-c", where], cwd="/", capture_output=True, text=True, check=True).stdout.strip()
    assert (Path(include) / "Python.h").exists()


def test_a_wheel_has_every_compiled_module_or_none(environment: Environment) -> None:
    names = {found[1] for name in in_wheel(environment.wheel) if (found := COMPILED.fullmatch(name))}
    sources = set(re.findall(r'compiled\("([\w.]+)"', (ROOT / "setup.py").read_text()))
    wanted = {f"waterclock/{name.replace('.', '/')}" for name in sources}
    assert names == (wanted if environment.kind.compiler else set())
    assert len(wanted) >= 9


def test_the_demos_have_every_file_of_theirs_and_no_other(whole: Environment) -> None:
    results = "bench/results/"
    wanted = {f"waterclock/{name}" for name in tracked("examples", "bench") if not name.startswith(results)}
    home = next(whole.folder.glob("lib/python*/site-packages"))
    there = [file for part in ("examples", "bench") for file in (home / "waterclock" / part).rglob("*")]
    assert {str(file.relative_to(home)) for file in there if file.is_file() and file.suffix != ".pyc"} == wanted


def test_nothing_is_needed_without_an_extra(environment: Environment) -> None:
    with ZipFile(environment.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        needed = re.findall(r"^Requires-Dist: (.+)$", wheel.read(metadata).decode(), re.M)
    assert len(needed) > 10
    assert [line for line in needed if "; extra ==" not in line] == []


def test_a_wheel_is_small(environment: Environment) -> None:
    """Today 1.2 MB plain and 1.7 MB compiled: neither demos nor what a debugger needs."""
    assert environment.wheel.stat().st_size < 2_200_000


def test_the_oldest_and_the_newest_python_are_tried_whole() -> None:
    tried = [(kind.version, kind.compiler) for kind in kinds() if kind.whole]
    assert sorted(tried) == [(kinds()[0].version, True), (kinds()[-1].version, False)]

"""What a wheel has: all of the tree that it is made of, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import unpack_archive
from zipfile import ZipFile

import pytest

from tests.installed.environments import FOLDER, NO_COMPILER, ROOT, Environment, built_of, kinds

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
    """Today 1.2 MB plain and 1.8 MB compiled, 4.6 MB unpacked: neither demos nor what a debugger needs. Below these bounds
    a wheel is not worth splitting (docs/dependencies.md)."""
    assert environment.wheel.stat().st_size < 2_200_000
    with ZipFile(environment.wheel) as wheel:
        assert sum(file.file_size for file in wheel.infolist()) < 5_000_000


def test_what_an_earlier_build_left_is_in_no_wheel(tmp_path: Path) -> None:
    """Modules of two rooms that have other names today were 2 MB of a wheel that was built in a clone."""
    kind = kinds()[1]
    (sdist,) = FOLDER.glob("sdist/waterclock-*.tar.gz")
    unpack_archive(sdist, tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    ask = "import sys, sysconfig; print(f'lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}')"
    folder = subprocess.run(
        [kind.python, "-c", ask], cwd="/", capture_output=True, text=True, check=True
    ).stdout.strip()
    left = tree / "build" / folder / "waterclock" / "gone"
    left.mkdir(parents=True)
    for name in ("_engine.so", "engine.py"):
        (left / name).write_text("of an earlier build")
    assert {name for name in in_wheel(built_of(kind, tree, NO_COMPILER)) if "gone" in name} == set()


def test_the_oldest_and_the_newest_python_are_tried_whole() -> None:
    tried = [(kind.version, kind.compiler) for kind in kinds() if kind.whole]
    assert sorted(tried) == [(kinds()[0].version, True), (kinds()[-1].version, False)]

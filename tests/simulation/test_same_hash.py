"""A seed has one hash: in every process, alone and behind others, whatever Python's hashes are. Each Python has its own."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.simulation.hashes import ROOT, hashes

pytest.importorskip("greenlet")
pytest.importorskip("kio")

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NEEDED = ("greenlet", "kio", "crc32c", "cramjam", "google-re2", "confluent-kafka", "numpy")
SEED, PAIR = 7, 12


@pytest.mark.parametrize("more", [(), ("--pair",)], ids=["one broker", "pair"])
def test_a_seed_has_one_hash_whatever_pythons_hashes_are(more: tuple[str, ...]) -> None:
    assert len({hashes(PAIR if more else SEED, 1, *more, hashseed=n)[0] for n in (1, 2, 3)}) == 1


@pytest.mark.parametrize("more", [(), ("--pair",)], ids=["one broker", "pair"])
def test_a_seed_has_the_same_hash_alone_and_as_the_nth_of_a_process(more: tuple[str, ...]) -> None:
    together = hashes(SEED - 4, 6, *more)
    assert [together[2], together[5]] == [*hashes(SEED - 2, 1, *more), *hashes(SEED + 1, 1, *more)]


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("hundred", range(10))
def test_a_seed_has_one_hash_a_thousand_times(hundred: int) -> None:
    with ThreadPoolExecutor(2) as two:
        found = set(two.map(lambda n: hashes(SEED, hashseed=n)[0], range(100 * hundred, 100 * hundred + 100)))
    assert found == set(hashes(SEED))


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_has_its_own_hash_and_always_the_same(version: str) -> None:
    python = _environment(version)
    assert len({hashes(SEED, hashseed=n, python=python)[0] for n in (1, 2, 3)}) == 1
    assert len({hashes(PAIR, 1, "--pair", hashseed=n, python=python)[0] for n in (1, 2, 3)}) == 1


def _environment(version: str) -> str:
    """A Python of this version with what the simulation needs, in a folder that is kept."""
    made = ROOT / "build" / "simulation" / version / "bin" / "python"
    if not made.exists():
        base = _python(version)
        if base is None:
            pytest.skip(f"there is no Python {version} here")
        subprocess.run([base, "-m", "venv", made.parents[1]], check=True)
        pinned = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([made, "-m", "pip", "install", "--quiet", *pinned, *NEEDED], check=True)
    return str(made)


def _python(version: str) -> str | None:
    """One that runs; a shim of pyenv need not."""
    places = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), shutil.which(f"python{version}")]
    for place in filter(None, places):
        if not subprocess.run([place, "-c", "import venv"], capture_output=True, check=False).returncode:
            return str(place)
    return None

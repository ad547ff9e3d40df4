"""A benchmark's result, written down: figures with the machine, the versions and the command, as JSON and as text.

Rule 1: figures without their machine are worth nothing, so the two are never apart.
Rule 2: the plots are drawn from the record alone (plots.py), so an old one can be drawn anew.
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "waterclock", "numpy", "uvloop", "sortedcontainers", "APScheduler", "pyspark", "pyarrow", "msgpack",
    "confluent-kafka", "psycopg", "mysql-replication", "PyMySQL", "redis", "procrastinate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one benchmark."""

    benchmark: str
    command: str
    machine: str
    versions: dict[str, str]
    figures: Any

    def head(self) -> str:
        """The lines above a table."""
        packages = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"$ {self.command}\n{self.machine}\n{packages}\n"

    def write(self, folder: Path, table: str) -> list[Path]:
        """<benchmark>.json and <benchmark>.txt in `folder`; what was written."""
        record, text = folder / f"{self.benchmark}.json", folder / f"{self.benchmark}.txt"
        record.write_text(self.json() + "\n", encoding="utf-8")
        text.write_text(f"{self.head()}\n{table}\n", encoding="utf-8")
        return [record, text]

    def json(self) -> str:
        """What a program reads; sizes become texts, as JSON has no other keys."""
        return json.dumps(asdict(self), indent=1)


def of(benchmark: str, command: str, figures: Any) -> Record:
    """The figures with this machine and its versions."""
    return Record(benchmark, command, machine(), versions(), figures)


def machine() -> str:
    """The processor, its cores, the system and the Python.

    >>> machine().count(", ")
    3
    """
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.M)
    system = f"{platform.system()} {platform.release()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return ", ".join([model[1] if model else "unknown CPU", f"{os.cpu_count()} cores", system, python])


def versions() -> dict[str, str]:
    """Of the packages that are there."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

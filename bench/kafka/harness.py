"""Java programs that drive Kafka's classes: compiled once a run, each measurement a process of its own.

Rule 1: the JVM runs as Kafka's start script runs it (G1, its pauses), with a heap that fits and was touched before.
Rule 2: numbers go to a program in files, its answer comes back as one line of JSON on stdout.
Rule 3: whatever keeps Kafka from being measured is a `NotMeasured` with its reason, and no reason to lose what else is
        measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

TOOLS: Final = ("java", "javac", "mvn")
AS_KAFKA_RUNS: Final = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
HEAP_MB: Final = 1_024
WORDS: Final = 300  # of what a program said when it failed: enough to see why
Report = Callable[[str], None]


class NotMeasured(Exception):
    """Why Kafka is not measured, as one sentence with what to do about it."""


@dataclass(frozen=True, slots=True)
class Harness:
    """The compiled programs; `jars` is Kafka's class path."""

    folder: Path
    jars: str

    def run(self, program: str, *arguments: Any, options: Sequence[str] = AS_KAFKA_RUNS, heap_mb: int = HEAP_MB) -> Any:
        """What the program reported, under the machine's clock; `NotMeasured` where it failed."""
        return self._run([], program, arguments, options, heap_mb)

    def turned(
        self, program: str, *arguments: Any, options: Sequence[str] = AS_KAFKA_RUNS, heap_mb: int = HEAP_MB
    ) -> Any:
        """The same under the clock that stands until it is turned."""
        return self._run([self.folder / "turned"], program, arguments, options, heap_mb)

    def _run(
        self, first: Sequence[Path], program: str, arguments: Sequence[Any], options: Sequence[str], heap_mb: int
    ) -> Any:
        path = os.pathsep.join([*map(str, first), str(self.folder / "programs"), self.jars])
        heap = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", "-XX:+AlwaysPreTouch")
        return read(_output(["java", *heap, *options, "-cp", path, program, *map(str, arguments)]))

    def file(self, name: str, numbers: Sequence[int]) -> Path:
        """The numbers where a program can read them."""
        path = self.folder / name
        with path.open("wb") as file:
            array("i", numbers).tofile(file)
        return path


@contextmanager
def built(report: Report) -> Iterator[Harness | NotMeasured]:
    """The programs, compiled into a folder that is gone afterwards; or why they are not there."""
    found: Harness | NotMeasured
    with tempfile.TemporaryDirectory(prefix="waterclock-kafka-") as name:
        try:
            found = _build(Path(name), report)
        except NotMeasured as why:
            report(f"Kafka is not measured: {why}")
            found = why
        yield found


def missing() -> list[str]:
    """The tools that are not on the PATH."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def _build(folder: Path, report: Report) -> Harness:
    if lacking := missing():
        raise NotMeasured(f"it needs {', '.join(lacking)} on the PATH (Debian: apt install default-jdk-headless maven)")
    report("Kafka: its jars by Maven, and the programs that drive it")
    with as_file(files("waterclock.bench.kafka")) as sources:
        jars = class_path(sources / "pom.xml", folder / "jars.txt")
        turned, programs = sources / "java" / "turned", sources / "java"
        compile_all(sorted(turned.glob("*.java")), folder / "turned", jars)
        both = os.pathsep.join([str(folder / "turned"), jars])
        compile_all(sorted(programs.glob("*.java")), folder / "programs", both)
    return Harness(folder, jars)


def class_path(pom: Path, file: Path) -> str:
    """The jars that a pom names, brought by Maven; they stand in `file` too."""
    asked = [
        "mvn",
        "--quiet",
        "--batch-mode",
        f"--file={pom}",
        "dependency:build-classpath",
        f"-Dmdep.outputFile={file}",
    ]
    _output(asked)
    return file.read_text(encoding="utf-8").strip()


def compile_all(sources: Sequence[Path], into: Path, path: str) -> None:
    """Java sources into classes; `path` is what they need."""
    _output(["javac", "-d", str(into), "-cp", path, *map(str, sources)])


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr + done.stdout).split())
        raise NotMeasured(f"{command[0]} ended with {done.returncode}: {said[-WORDS:] or 'it said nothing'}")
    return done.stdout


def read(output: str) -> Any:
    """The record in a program's last line.

    >>> read('a warning\\n{"ran": 3}\\n')
    {'ran': 3}
    """
    lines = output.strip().splitlines() or [""]
    try:
        return json.loads(lines[-1])
    except json.JSONDecodeError:
        raise NotMeasured(f"the program told no record: {lines[-1][:WORDS]!r}") from None

"""The Java programs of this room: compiled once and kept, as long as no source and no jar of theirs has changed.

Rule 1: what is kept lies in build/processors, under a name that is a digest of the sources: another source is another name.
Rule 2: whatever keeps a program from being made is a `NotMeasured` with its reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from waterclock.bench.kafka.harness import NotMeasured, class_path, compile_all, missing

KEPT: Final = Path(__file__).parents[2] / "build" / "processors"
HEAP: Final = ("-Xms256m", "-Xmx3g", "-XX:+UseG1GC")
QUIET: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:-UsePerfData")
# Flink looks into classes of the JDK
OPENED: Final = ("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED")
Report = Callable[[str], None]


def command(name: str, report: Report) -> list[str]:
    """How `name`, "flink" or "streams", is started; `NotMeasured` where it cannot be made."""
    if lacking := missing():
        raise NotMeasured(f"it needs {', '.join(lacking)} on the PATH (Debian: apt install default-jdk-headless maven)")
    with as_file(files("waterclock.bench.processors")) as room:
        pom, sources = room / name / "pom.xml", _sources(room, name)
        folder = KEPT / f"{name}-{_digest([pom, *sources])}"
        if not is_whole(folder):
            report(f"{name}: its jars by Maven, and the program")
            _make(folder, pom, sources)
    path = os.pathsep.join([str(folder / "classes"), *_jars(folder)])
    return ["java", *HEAP, *QUIET, *OPENED, "-cp", path, f"{name}.Main"]


def is_whole(folder: Path) -> bool:
    """Whether a program lies there, with all jars that it needs.

    >>> is_whole(Path("nowhere"))
    False
    """
    return (folder / "class_path").exists() and all(Path(jar).exists() for jar in _jars(folder))


def _jars(folder: Path) -> list[str]:
    return (folder / "class_path").read_text(encoding="utf-8").strip().split(os.pathsep)


def _sources(room: Path, name: str) -> list[Path]:
    return sorted([*(room / "orders").glob("*.java"), *(room / name).glob("*.java")])


def _digest(sources: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _make(folder: Path, pom: Path, sources: Sequence[Path]) -> None:
    """Beside its place, and then there as a whole: two runs may begin at once."""
    KEPT.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=KEPT))
    try:
        jars = class_path(pom, made / "class_path")
        compile_all(sources, made / "classes", jars)
        if not is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)

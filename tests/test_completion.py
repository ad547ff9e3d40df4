"""What a command offers and what it says to a name that it does not have; completion by a real bash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_import import bare
from waterclock import cli
from waterclock.errors import pip_install


@pytest.mark.parametrize("demo", ["fines", "kills", "cdc", "delays", "order", "batching"])
def test_the_help_of_a_demo_is_about_that_demo(demo: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It was one help of all of them, with every option of each."""
    with pytest.raises(SystemExit, match="0"):
        cli.main(["demo", demo, "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: waterclock demo {demo} [-h] [--json]")
    assert f"`waterclock demo {demo}`: " in out
    assert ("--reminders" in out, "--changes" in out) == (demo == "delays", demo == "cdc")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("rnu orders.toml", "run"),
        ("run orders.toml --onec", "--once"),
        ("relay snd reminders hello", "send"),
        ("relay read reminders --mst 3", "--most"),
        ("demo fnes", "fines"),
        ("demo kills --kills=3 --sed 4", "--seed"),
        ("bench timrs", "timers"),
        ("cdc mysql://u@h/d --to kafka://h/t --topics per-tabel", "per-table"),
        ("broker --set num.partition=3", "num.partitions"),
        ("trace sevn-tasks", "seven-tasks"),
    ],
)
def test_a_name_that_is_refused_is_told_the_one_that_was_meant(
    arguments: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        sys.exit(cli.main(arguments.split()))
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run", "p.toml"], ["state", "rescale", "p.toml", "--buckets", "8"]])
def test_a_master_that_was_never_tried_is_not_offered(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for untried in ("k8s://host:443", "mesos://host", "local-cluster[2,1,1024]", "spark:/host"):
        with pytest.raises(SystemExit, match="2"):
            cli.main([*command, "--master", untried])
        assert f"{untried!r} was never tried; spark://HOST:7077, yarn and local[N] were" in capsys.readouterr().err


# The Tab key: what bash would show behind these words

BASH = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE="{line}" COMP_POINT={end}
complete -p waterclock | sed 's/.*-F \\([^ ]*\\).*/\\1/' > {script}.function
$(cat {script}.function) waterclock "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("shtab")
    command = [sys.executable, "-m", "waterclock.cli", "--print-completion", "bash"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    file = tmp_path_factory.mktemp("completion") / "waterclock.bash"
    file.write_text(printed)
    return file


def shown(script: Path, words: list[str]) -> list[str]:
    line = " ".join(["waterclock", *words])
    quoted = " ".join(f"'{word}'" for word in ["waterclock", *words])
    asked = BASH.format(script=script, words=quoted, last=len(words), line=line, end=len(line))
    command = ["bash", "--norc", "--noprofile", "-c", asked]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("r", {"run", "relay"}),
        ("relay re", {"replace", "read"}),
        ("run --fr", {"--fresh"}),
        ("cdc --topics ", {"one", "per-table"}),
        ("demo del", {"delays"}),
        ("demo delays --qu", {"--quick"}),
        ("demo fines --kil", set()),
        ("broker --users pip", {"pipes.toml"}),
    ],
)
def test_bash_completes_commands_options_choices_and_files(script: Path, typed: str, offered: set[str]) -> None:
    (script.parent / "pipes.toml").touch()
    assert set(shown(script, typed.split(" "))) == offered


def test_without_shtab_one_sentence_says_how_to_get_it() -> None:
    done = bare("from waterclock.cli import main; sys.exit(main(sys.argv[1:]))", "--print-completion", "zsh")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"waterclock: shtab is missing: {pip_install('completion')}\n"

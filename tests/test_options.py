"""An option that is misspelt or cut short is refused by its own name, whatever else is missing, and nothing is done."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from waterclock import cli


def parsers(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Each command, by the words that call it."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, *words, name)


COMMANDS = dict(parsers(cli._parser()))


@pytest.mark.parametrize("value", [(), ("7",)], ids=["alone", "with a value"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_misspelt_is_named_before_what_is_missing(
    words: tuple[str, ...], value: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`relay send reminders hello --dely 3s` was told that one of --delay, --at and --cron is required, and
    `broker --dta out/x` that out/x is no command."""
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words, "--hlep", *value])
    assert re.search(r"unrecognized arguments: --hlep( 7)?; did you mean '--help'\?", capsys.readouterr().err)


def test_the_option_that_was_meant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["relay", "send", "reminders", "hello", "--dely", "3s"])
    assert "unrecognized arguments: --dely; did you mean '--delay'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_option_is_written_whole(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """`broker --dat x` made a folder x."""
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words, "--hel"])
    assert "unrecognized arguments: --hel;" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("send r x --delay 3s", "'waterclock relay send'"),
        ("replace", "'waterclock relay replace'"),
        ("brokr", "'broker'"),
    ],
)
def test_a_command_that_is_not_there_is_named_and_not_its_options(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(words.split())
    told = capsys.readouterr().err
    assert f"invalid choice: '{words.split()[0]}'" in told
    assert f"did you mean {hint}?" in told


def test_what_is_no_request_is_told_before_kafka_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt --cron was told after half a minute, as a Kafka that is not there."""
    words = ["send", "t", "v", "--cron", "0 9 * *", "--id", "x", "--bootstrap", "127.0.0.1:1"]
    assert cli.main(["relay", *words]) == 2
    assert capsys.readouterr().err == (
        "waterclock: --cron must be five fields such as 0 9 * * MON-FRI, got '0 9 * *'.\n"
    )

"""`waterclock --print-completion SHELL`: a script for bash, zsh or tcsh that completes every command, option and choice.

It is printed once and kept, so that the Tab key starts no Python. The package shtab makes it, from the commands' parsers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from waterclock.errors import pip_install

SHELLS: Final = ("bash", "zsh", "tcsh")
_FILES: Final = ("FILE", "PIPELINE.toml")
_FOLDERS: Final = ("DIR", "FOLDER")


class PrintCompletion(argparse.Action):
    """Prints the script of the whole command that it is an option of, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, shell: Any, *_: Any) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.exit(1, f"{parser.prog}: shtab is missing: {pip_install('completion')}\n")
        for action in _actions(parser):
            if action.metavar in _FILES + _FOLDERS:
                action.complete = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)

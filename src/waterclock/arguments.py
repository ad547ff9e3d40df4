"""What options of several commands have in common: their types, and how a command says what it is.

Rule 1: a wrong value is refused by argparse, with what it got and how it is written.
Rule 2: nothing of ours is imported here: every command's parser is made at each start, whichever command it is.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress

Command = Callable[[argparse.Namespace], int]
TRIED_MASTERS = r"local(\[.+\])?|yarn|spark://.+"


class ProseHelp(argparse.HelpFormatter):
    """Prose as wide as the terminal is; an example as it is written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example") else super()._fill_text(text, width, indent)


class Beside(argparse._SubParsersAction):  # type: ignore[type-arg]  # Python 3.11 knows no argument
    """Commands below one that takes words of its own: one is meant if the first word names it (cli.py)."""


def describe(parser: argparse.ArgumentParser, command: Command, example: str) -> None:
    """Have `parser` run `command`, whose docstring is the description in its help; `example` stands below."""
    parser.description, parser.epilog = command.__doc__, f"example: {example}"
    parser.formatter_class = ProseHelp
    parser.set_defaults(command=command)


def counts(text: str) -> list[int]:
    """Numbers with commas between, rising, each once.

    >>> counts("2.5M,1k,1k")
    [1000, 2500000]
    """
    return sorted({count(part) for part in text.split(",")})


def count(text: str) -> int:
    """A whole number from 1 on.

    >>> count("500"), count("100k"), count("1.5M")
    (500, 100000, 1500000)
    """
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?([kM]?)", text)
    number = float(f"{match[1]}.{match[2] or 0}") * {"": 1, "k": 1_000, "M": 1_000_000}[match[3]] if match else 0
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no count from 1 on: write it as 500, 100k or 10M")
    return int(number)


def seconds(text: str) -> float:
    """A time from a tenth of a second to a day.

    >>> seconds("0.5")
    0.5
    """
    with suppress(ValueError):
        if 0.1 <= (number := float(text)) <= 86_400:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is no time from 0.1 to 86400 seconds")


def master(text: str) -> str:
    """Where Spark runs: of the kinds that waterclock was tried on.

    >>> master("spark://one:7077,two:7077"), master("yarn"), master("local[4]")
    ('spark://one:7077,two:7077', 'yarn', 'local[4]')
    """
    if re.fullmatch(TRIED_MASTERS, text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} was never tried; spark://HOST:7077, yarn and local[N] were. Who tries another one sets "
        '"spark.master" under [spark.conf] in the pipeline\'s file'
    )


def port(text: str) -> int:
    """A port, or 0 for any free one.

    >>> port("9400")
    9400
    """
    if text.isdecimal() and int(text) < 65_536:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")

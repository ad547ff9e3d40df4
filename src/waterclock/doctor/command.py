"""`waterclock doctor`, and which doors it may be asked for."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from waterclock.arguments import describe
from waterclock.errors import meant

DOORS: Final = (
    "timers", "broker", "relay", "cdc", "local", "spark", "kafka", "postgres", "mysql", "duckdb", "delta",
    "iceberg",
)  # fmt: skip
"""What waterclock is used for, each with the extra of its name; `timers` needs none, `local` are pipelines without
Spark. The last six are sources and sinks."""


def add_to(parser: ArgumentParser) -> None:
    """The options."""
    describe(parser, run, "waterclock doctor\nexample: waterclock doctor relay --folder out/relay")
    which = f"what has to work: {', '.join(DOORS)} (default: whatever is installed)"
    parser.add_argument("doors", nargs="*", type=_door, metavar="DOOR", help=which)
    kept = "where files would be kept: is it writable, how long does fsync take (default: this folder)"
    parser.add_argument("--folder", default=".", metavar="DIR", help=kept)
    parser.add_argument("--json", action="store_true", help="print it as JSON, for programs")


def _door(text: str) -> str:
    if text in DOORS:
        return text
    raise ArgumentTypeError(f"{text!r} is none of waterclock's doors; {meant(text, DOORS)}")


def run(arguments: Namespace) -> int:
    """`waterclock doctor`: what works on this machine, and what to do about what does not. Exit code 1 if a door that was
    named does not work, or one that is installed; one that is not installed, or partly, and not named is no fault."""
    from pathlib import Path

    from waterclock.doctor import report

    seen = report.look(arguments.doors, Path(arguments.folder))
    print(report.as_json(seen) if arguments.json else report.as_text(seen))
    return seen.exit_code

"""The command `waterclock`: which commands there are, and the exit code of each error.

What a command takes and does stands in its room's command.py: `add_to(parser)` gives its options, `run(arguments)` does it.
Exit codes: 0 done, 1 failed, 2 wrong usage. What went wrong and what to do stands in one sentence on stderr, never a
traceback for a user's mistake; a second line names `waterclock doctor` where this machine lacks something. `--json` prints
what a program would read on stdout.

Rule 1: all options are made at each start, so a command.py imports what is heavy inside of `run`.
Rule 2: `waterclock --print-completion SHELL` prints a script for bash, zsh or tcsh that completes every command, option and
    choice. It is printed once and kept, so that the Tab key starts no Python. The package shtab makes it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from importlib import import_module
from itertools import takewhile
from typing import Any, Final, NoReturn

from waterclock import __version__
from waterclock.arguments import Beside, Command
from waterclock.broker import command as broker
from waterclock.cdc import command as cdc
from waterclock.cdc.move import command as move
from waterclock.doctor import command as doctor
from waterclock.errors import (
    EnvironmentMissing,
    UsageError,
    WaterclockError,
    extra_of,
    meant,
    pip_install,
    see_doctor,
    unstopped,
)
from waterclock.pipelines import command as pipelines
from waterclock.pipelines import state
from waterclock.relay import command as relay
from waterclock.trace import command as trace
from waterclock.web.console import command as console
from waterclock.web.top import command as top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the value is the process's exit code."""
    try:
        try:
            return _run(_parser().parse_args(arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a short answer waits in its buffer, --help's too: when Python ends it is too late
    except BrokenPipeError:
        _drop_output()
        sys.stderr.close()  # the reader of our output went away: nothing more to say, and nowhere to say it
        return 1
    except OSError as error:  # a full disk, a folder of another user
        _drop_output()
        return _fail(
            1,
            f"the system refuses: {unstopped(error)}. "
            "What was committed stays; mend the cause, and run the same command again",
        )


def _drop_output() -> None:
    """Have what stdout still holds go nowhere: Python tries it once more at its end, and complains then."""
    with suppress(OSError, ValueError):  # it is no file of the system's, or closed
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(parsed: argparse.Namespace) -> int:
    command: Command = parsed.command
    try:
        return command(parsed)
    except UsageError as error:
        return _fail(2, str(error))
    except WaterclockError as error:
        return _fail(1, str(error), *getattr(error, "__notes__", ()))
    except KeyboardInterrupt:
        return _fail(1, "stopped; what was committed stays, and the same command goes on from there")
    except ModuleNotFoundError as error:
        return _fail(1, *_how_to_get(error, parsed))


_Commands: Final = argparse._SubParsersAction


class _Parser(argparse.ArgumentParser):
    """Says which command or option was meant where one is refused; a command's parser is one too.

    What begins with a minus and a digit is a value, so that -3s is refused by what reads it, as negative. An option is
    written whole. One that is unknown is said before one that is missing: it may be the same, misspelt. Of a command that
    takes words of its own, the first word may name another one beside it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})
        self._negative_number_matcher = re.compile(r"-\.?\d")  # Python 3.14 has it so
        self._unknown: list[str] = []
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = words = sys.argv[1:] if args is None else [*args]
        if (beside := self._below(Beside)) and words[:1] and words[0] in beside:
            return beside[words[0]].parse_known_args(words[1:], namespace)
        self._unknown = self._unknown_options(words)
        parsed, left = super().parse_known_args(args, namespace)
        if left:  # the command that was given them says so: it knows its options, and shows its usage
            self._refuse(left)
        return parsed, left

    def _unknown_options(self, words: Sequence[str]) -> list[str]:
        """Those among the words of this command itself: those before the first word where that names one below it."""
        own, unknown = {*self._option_string_actions}, []
        is_above = self._below().keys() > self._below(Beside).keys()
        for word in takewhile(lambda word: word != "--" and (word.startswith("-") or not is_above), words):
            is_option = word.startswith("-") and len(word) > 1 and not self._negative_number_matcher.match(word)
            if is_option and word.partition("=")[0] not in own and word[:2] not in own:
                unknown.append(word)
        return unknown

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        named = next((word for word in left if word.startswith("-")), "")
        beside = self._below(Beside)
        late = [f"{word} has to stand first: {self.prog} {word}" for word in self._words if word in beside]
        hint = meant(named.partition("=")[0], known, "--help lists what there is") if named else ""
        hint = hint or next(iter(late), meant(self._words[0], beside, "too many of them"))
        self.error(f"unrecognized arguments: {' '.join(left)}; {hint}")

    def _below(self, kind: type[argparse._SubParsersAction[Any]] = _Commands) -> dict[str, argparse.ArgumentParser]:
        """The commands below this one, or only those of a kind."""
        return {name: one for act in self._actions if isinstance(act, kind) for name, one in act.choices.items()}

    def _get_positional_actions(self) -> list[argparse.Action]:
        return [each for each in super()._get_positional_actions() if not isinstance(each, Beside)]

    def _meant(self, word: str, known: Sequence[str]) -> str:
        """A hint at what a word stands for: a command that is further below, or what is like it."""
        deeper = [one for one in self._below().values() if isinstance(one, _Parser) and word in one._below()]
        return f"did you mean '{deeper[0].prog} {word}'?" if deeper else meant(word, known, " ").strip()

    def error(self, message: str) -> NoReturn:
        # some are required; or what stood behind it was taken for another one
        if self._unknown and re.match(r"(the following|one of the) arguments |argument [^-]", message):
            self._refuse(self._unknown)
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.+)\)$", message)
        if found and (hint := self._meant(found[1], re.findall(r"[\w-]+", found[2]))):
            message += f"; {hint}"
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="waterclock", description="Kafka's way with time, for Python.")
    parser.add_argument("--version", action="version", version=f"waterclock {__version__}")
    parser.add_argument("--print-completion", action=PrintCompletion, choices=SHELLS, help="a script for that shell")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    pipelines.add_to(commands.add_parser("run", help="run a pipeline"))
    state.add_to(commands.add_parser("state", help="show or carry over what a pipeline keeps in its checkpoint"))
    broker.add_to(commands.add_parser("broker", help="serve Kafka's protocol on this machine"))
    cdc.add_to(commands.add_parser("cdc", help="copy a database's changes to Kafka"))
    move.add_to(commands.add_parser("move", help="go on where a Debezium connector ended"))
    relay.add_to(commands.add_parser("relay", help="deliver messages later"), _start_broker, _take_outbox)
    _beside("examples")(commands.add_parser("demo", help="run an example: the main job, a lesson, kills"))
    console.add_to(commands.add_parser("console", help="show running processes on one live page"))
    top.add_to(commands.add_parser("top", help="show running processes in this terminal"))
    trace.add_to(commands.add_parser("trace", help="step through a timing wheel"))
    doctor.add_to(commands.add_parser("doctor", help="see what works on this machine, and what is missing"))
    _beside("bench")(commands.add_parser("bench", help="measure beside others"))
    return parser


def _start_broker(folder: os.PathLike[str], port: int) -> AbstractContextManager[Any]:
    """The broker of `waterclock relay --embedded`: the relay itself knows none."""
    from waterclock.broker.broker import Broker

    return Broker(
        folder, port=port, settings={"group.initial.rebalance.delay.ms": "0"}
    )  # one relay: nobody to wait for


def _take_outbox(*arguments: Any) -> Any:
    """What `waterclock relay --outbox` takes rows by: the relay itself knows no database's log."""
    from waterclock.outbox.taker import OutboxTaker

    return OutboxTaker(*arguments)


def _beside(package: str) -> Callable[[argparse.ArgumentParser], None]:
    """The `add_to` of a package that lies beside src: an editable install has it, and the distribution waterclock-demos."""
    try:
        add_to: Callable[[argparse.ArgumentParser], None] = import_module(f"waterclock.{package}.command").add_to
    except ModuleNotFoundError as error:
        if error.name != f"waterclock.{package}":
            raise
        return partial(_add_missing, package)
    return add_to


def _add_missing(package: str, parser: argparse.ArgumentParser) -> None:
    def refuse(arguments: argparse.Namespace) -> int:
        raise EnvironmentMissing(
            f"waterclock.{package} is missing, as it is a package of its own: pip install ./demos in a clone of waterclock"
        )

    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.set_defaults(command=refuse)


def _how_to_get(error: ModuleNotFoundError, parsed: argparse.Namespace) -> list[str]:
    command: Command = parsed.command
    name = (error.name or "").partition(".")[0]
    if name in {"", "waterclock"}:
        raise error
    extra, here = extra_of(name), ""
    more: tuple[str, ...] = ()
    if command in (cdc.run, move.run):  # which has packages in common with the others, as has the next
        extra = "cdc"
    elif command.__module__ == relay.__name__ and name not in ("psycopg", "pymysql", "pymysqlreplication"):
        extra = "relay"
        more = ("broker",) if getattr(parsed, "embedded", None) else ()  # which would be missed next
    elif command is pipelines.run and extra == "spark":
        if pipelines.is_local(parsed):
            extra = "local"
        else:
            here = f"; or, to run it without Spark and Java: {pip_install('local')}, and --engine local"
    hint = [see_doctor(extra)] if extra in doctor.DOORS else []
    return [f"{name} is missing: {pip_install(extra, *more)}{here}", *hint]


def _fail(code: int, *message: str) -> int:
    for line in message:
        print(f"waterclock: {line}", file=sys.stderr)
    return code


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
        if isinstance(action, _Commands):
            for below in action.choices.values():
                yield from _actions(below)


if __name__ == "__main__":
    sys.exit(main())

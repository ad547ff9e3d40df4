"""Reference: what the code knows as a table. Commands from their parsers, the broker's settings, metrics from the records
that say how each field is shown, errors from their classes."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, get_args, get_type_hints

from docsite.pages import ROOT, title_and_summary
from waterclock import cli, errors
from waterclock.broker.settings import SETTINGS
from waterclock.broker.statistics import BrokerStatistics
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.relay.statistics import RelayStatistics
from waterclock.streaming.statistics import PipelineStatistics
from waterclock.web.record import LABEL, Each, Shown

# command -> its record, what all names of its metrics have in front, the labels that all have
RECORDS: Mapping[str, tuple[type, str, tuple[str, ...]]] = {
    "broker": (BrokerStatistics, "broker_", ()),
    "relay": (RelayStatistics, "relay_", ()),
    "run": (PipelineStatistics, "", ()),
    "cdc": (CaptureStatistics, "capture_", ("capture",)),
}
WIDTH = 88
TITLES = {"options": "Options", "positional arguments": "Arguments"}


def pages() -> dict[str, str]:
    """Every page, by its name in the reference."""
    top = {f"commands/{name}.md": _command(parser) for name, parser in _below(cli._parser()).items()}
    return top | {"broker-settings.md": _settings(), "metrics.md": _metrics(), "errors.md": _errors()}


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [[re.sub(r"(?<!\\)\|", r"\|", cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def prose(text: str) -> str:
    """Text of a help as Markdown: words of a program are code, and nothing else is markup.

    >>> prose('a text such as "a.*", or --all of [source]')
    'a text such as `"a.*"`, or `--all` of `[source]`'
    """
    parts = re.split(r'(`[^`]+`|"[^"]*"|\[[a-z.]+\]|\{[^}]*\}+|(?<![\w-])--[a-z-]+)', " ".join(text.split()))
    parts[::2] = [re.sub(r"([*<\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [part if part.startswith("`") else f"`{part}`" for part in parts[1::2]]
    return "".join(parts)


# Commands -----------------------------------------------------------------------------------------------------


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """It and all commands below it."""
    yield parser
    for each in _below(parser).values():
        yield from commands(each)


def _command(parser: argparse.ArgumentParser) -> str:
    whole = commands(parser)
    return (
        "\n\n".join(
            (
                f"# {next(whole).prog}",
                *_described(parser),
                *(text for each in whole for text in (f"## {each.prog}", *_described(each))),
            )
        )
        + "\n"
    )


def _described(parser: argparse.ArgumentParser) -> Iterator[str]:
    parser.formatter_class = partial(parser.formatter_class, width=WIDTH)  # type: ignore[assignment]  # argparse calls it
    parser.color = False  # Python 3.14 would colour it in a terminal
    said = prose(parser.description or "").removeprefix(f"`{parser.prog}`: ")
    yield said[:1].upper() + said[1:]
    yield "```text\n" + parser.format_usage().removeprefix("usage: ").strip().replace("\n       ", "\n") + "\n```"
    for group in parser._action_groups:
        rows = [
            _option(parser, action)
            for action in group._group_actions
            if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        ]
        if rows:
            yield f"**{TITLES.get(group.title or '', group.title)}**"
            yield table(("option" if group._group_actions[0].option_strings else "argument", "meaning"), rows)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield table(
                ("command", "does"), [(f"`{each.dest}`", prose(each.help or "")) for each in action._choices_actions]
            )
    if parser.epilog:
        yield "\n\n".join(_examples(parser.epilog))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    formatter = parser._get_formatter()
    name = formatter._format_action_invocation(action)
    said = prose(formatter._expand_help(action)) if action.help else ""
    needed = action.option_strings and action.required
    return f"`{name}`", f"{said} (needed)" if needed else said


def _examples(epilog: str) -> Iterator[str]:
    """`example: a command`, or lines below `examples:`."""
    lines = [re.sub(r"^examples?:\s*", "", line).rstrip() for line in epilog.strip("\n").splitlines()]
    yield "Examples:" if len([line for line in lines if line.strip().startswith("waterclock")]) > 1 else "Example:"
    yield "```text\n" + "\n".join(line.removeprefix("  ") for line in lines if line) + "\n```"


# The broker's settings ----------------------------------------------------------------------------------------


def _settings() -> str:
    rows = [
        (f"`{s.name}`", f"`{s.topic}`" if s.topic else "", s.kind, f"`{s.default}`" if s.default else "", prose(s.doc))
        for s in SETTINGS.values()
    ]
    return (
        "# Settings of the broker\n\n"
        "`waterclock broker --set NAME=VALUE`, or `Broker(settings={...})`, sets one when the broker starts; an admin "
        "client changes a topic's. Names are Kafka's. `waterclock broker --settings` lists them.\n\n"
        f"{table(('name', 'of a topic', 'kind', 'default', 'meaning'), rows)}\n"
    )


# Metrics ------------------------------------------------------------------------------------------------------


def metrics(record: type, prefix: str, labels: tuple[str, ...]) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """(name, kind, labels, help) of each metric of a record, and of the records inside of it."""
    kinds, its = get_type_hints(record), fields(record)
    labels += tuple(each.name for each in its if each.metadata == LABEL)
    for each in its:
        inside = _record_in(kinds[each.name])
        if inside and inside is kinds[each.name]:
            yield from metrics(inside, prefix, labels)
        for how in each.metadata.values():
            if isinstance(how, Shown):
                yield f"waterclock_{prefix}{how.name}", how.kind, (*labels, *how.by), how.help
            elif isinstance(how, Each) and inside:
                yield from metrics(inside, f"{prefix}{how.prefix}", (*labels, how.label))


def _record_in(kind: Any) -> Any:
    """The record that a field's type is or holds."""
    return kind if is_dataclass(kind) else next((found for each in get_args(kind) if (found := _record_in(each))), None)


def _metrics() -> str:
    parts = [
        "# Metrics",
        "Every command that runs for long takes `--metrics PORT`. It serves `/metrics` in Prometheus's text format, and "
        "the same figures as JSON at `/statistics.json`, on 127.0.0.1 only. A value that is not known has no sample.",
    ]
    for command, of in RECORDS.items():
        rows = [
            (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), prose(said))
            for name, kind, labels, said in metrics(*of)
        ]
        parts += [f"## waterclock {command}", table(("name", "kind", "labels", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


# Errors -------------------------------------------------------------------------------------------------------


@cache
def error_classes() -> dict[str, tuple[str, str, str]]:
    """Each class of error -> (its module, its base, its docstring), found in the sources."""
    classes = {
        node.name: (
            ".".join(path.relative_to(ROOT / "src").with_suffix("").parts),
            [ast.unparse(base) for base in node.bases],
            ast.get_docstring(node) or "",
        )
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    found = {"WaterclockError": (errors.__name__, "Exception", classes["WaterclockError"][2])}
    while more := {
        n: (m, b, d) for n, (m, bases, d) in classes.items() for b in bases if b in found and n not in found
    }:
        found |= more
    return found


def _errors() -> str:
    caption = errors.__doc__ or ""
    tree = caption[caption.index("    WaterclockError") : caption.index("A wrong argument")].rstrip()
    tree = re.sub(r"^    ", "", tree, flags=re.M)
    exits = re.search(r"Exit codes: (.+?)\.", cli.__doc__ or "", re.S)
    assert exits is not None
    rows = [
        (f"`{name}`", f"`{base}`", f"`{module}`", prose(title_and_summary(said)[1]))
        for name, (module, base, said) in sorted(error_classes().items(), key=lambda each: each[1][0])
    ]
    of_all = [(name, base, said) for name, base, module, said in rows if module == f"`{errors.__name__}`"]
    of_one = [row for row in rows if row[2] != f"`{errors.__name__}`"]
    codes = [tuple(re.fullmatch(r"(\d) (.+)", each.strip()).groups()) for each in exits[1].split(",")]  # type: ignore[union-attr]
    return "\n\n".join((
        "# Errors and exit codes",
        "An error is one sentence that names the cause and what to do. A command prints it on stderr and ends with an exit "
        "code; a function raises it as an exception.",
        "## Exit codes",
        table(("code", "means"), [(f"`{code}`", meaning) for code, meaning in codes]),
        "## Whose doing it is",
        f"```text\n{tree}\n```",
        "A wrong argument of a function raises Python's own `ValueError` or `TypeError` at the call, and names it.",
        "## Classes of waterclock.errors",
        table(("class", "is a", "means"), of_all),
        "## Classes of one part",
        "Most of these are met as a message on stderr only. `waterclock.broker` exports `DataInUse` and `LogDamaged`.",
        table(("class", "is a", "module", "means"), of_one),
    )) + "\n"  # fmt: skip

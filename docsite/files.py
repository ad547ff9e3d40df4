"""Reference: every key of a pipeline's file. Which there are, of what kind and with which default is what the loader asks
for while it reads a file of each format; what a key means stands in the caption of the module that asks.

Rule 1: a key without a meaning fails the build. A key whose meaning says what happens if it is left out shows no default.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from docsite.tables import prose, table
from waterclock.rules import toml as rules
from waterclock.rules.model import OnGap, Rules
from waterclock.streaming.toml import config, readers, sink, steps, topics
from waterclock.streaming.toml import table as tables

Facts = dict[str, tuple[Any, str]]  # key -> default, what it must be
_COLUMNS = {"k": "string", "t": "timestamp"}
_FILES = {"path": "in", "columns": _COLUMNS}
_KAFKA = {"format": "kafka", "servers": "a:1", "topics": ["t"]}
# where -> the parts of a file that have the loader ask for all of its keys
SOURCES: Mapping[str, tuple[ModuleType, list[dict[str, Any]]]] = {
    'format = "jsonl" or "parquet"': (config, [_FILES]),
    'format = "csv", "json", "orc", "text", "delta" or "table"': (
        readers,
        [{"format": "csv", **_FILES, "query": "SELECT 1"}, {"format": "table", "table": "a.b"}],
    ),
    'format = "kafka"': (
        topics,
        [{**_KAFKA, "columns": _COLUMNS, "query": "SELECT 1"}, {**_KAFKA, "value": "debezium"}],
    ),
}
SINKS: Mapping[str, dict[str, str]] = {
    "sqlite": {"path": "x.db"}, "postgres": {"url": "postgresql://u@h/d"}, "mysql": {"url": "mysql://u@h/d"},
    "duckdb": {"path": "x.db"}, "delta": {"path": "x"}, "iceberg": {"table": "a.b"}, "table": {"table": "a.b"},
    "kafka": {"servers": "a:1", "topic": "t"},
}  # fmt: skip
_WORD = re.compile(r"^(?: {4})?(?:(\[.*)|([a-z_]+) {2,}(\S.*(?:\n {6,}.*)*))$", re.M)


class Asked(tables.FileTable):
    """A table that notes what is asked of it; of one key the first time counts, and `get` where nothing says more."""

    noted: dict[str, Facts] = {}  # noqa: RUF012  # of all of them: the loader makes tables of tables
    _get: dict[tuple[str, str], Any] = {}  # noqa: RUF012

    def note(self, name: str, default: Any, kind: str) -> None:
        self.noted.setdefault(self.where, {}).setdefault(name, (default, kind))

    def check(self, known: Iterable[str]) -> None:
        for name in known:
            self.noted.setdefault(self.where, {})
            self._get.setdefault((self.where, name), None)
        super().check(known)

    def get(self, name: str, default: Any = None) -> Any:
        if default is not None or (self.where, name) not in self._get:
            self._get[self.where, name] = default
        return super().get(name, default)

    def take(self, name: str, kind: type, default: Any = tables._REQUIRED) -> Any:
        self.note(name, default, tables._NAMES[kind])
        return super().take(name, kind, default)

    def texts(self, name: str, default: list[str]) -> list[str]:
        self.note(name, default, "a list of texts")
        return super().texts(name, default)

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        self.note(name, default, ", ".join(f"`{json.dumps(each)}`" for each in allowed))
        return super().one_of(name, allowed, default)

    def count(self, name: str, default: int) -> int:
        self.note(name, None if name not in self and default == 1 else default, "1 or more")
        return super().count(name, default)

    def number(self, name: str, default: int, largest: int) -> int:
        self.note(name, None if default < 0 else default, f"1 to {largest}")
        return super().number(name, default, largest)

    def duration(self, name: str, default: int) -> int:
        self.note(name, default, "a duration")
        return super().duration(name, default)

    def client(self, own: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        self.note("servers", tables._REQUIRED, "a text or a list of texts")
        return super().client(own)

    @classmethod
    def of(cls, *files: dict[str, Any]) -> dict[str, Facts]:
        """What the loader asks while it reads these files, by table."""
        cls.noted, cls._get = {}, {}
        with mock.patch.object(config, "FileTable", cls), mock.patch.object(tables, "FileTable", cls):
            for file in files:
                faults = config.Faults()
                config._config(cls("the file", file, Path("/in")), Path("/in/p.toml"), faults)
                assert not faults.found, (file, faults.found)
        for (where, name), default in cls._get.items():
            cls.noted.setdefault(where, {}).setdefault(name, (default, ""))
        return cls.noted


def file_of(source: Mapping[str, Any], its_sink: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline's file with every table that has keys of its own."""
    there = {
        "source": dict(source),
        "sink": dict(its_sink),
        "pipeline": {},
        "local": {"buckets": 4},
        "spark": {"cores": 1},
    }
    return there if source.get("value") else {**there, "time": {}, "rules": {"key": "k", "time": "t"}}


def meanings(module: ModuleType) -> dict[tuple[str, str], str]:
    """(table, key) -> what it means, of a module's caption."""
    found, sections = {}, ["[sink]"]
    for section, key, meaning in _WORD.findall(module.__doc__ or ""):
        sections = section.split(", ") if section else sections
        found |= {(each, key): " ".join(meaning.split()) for each in sections if key}
    return found


def keys() -> dict[str, dict[str, tuple[Any, str, str]]]:
    """Heading of a part -> key -> its default, what it must be, what it means."""
    whole = Asked.of(file_of(_FILES, SINKS["sqlite"]))
    parts = {name: _with(whole[name], name, config) for name in ("[pipeline]", "[time]", "[local]", "[spark]")}
    for heading, (module, given) in SOURCES.items():
        asked = Asked.of(*(file_of(each, SINKS["sqlite"]) for each in given))["[source]"]
        if module is not config:
            asked.pop("format")  # it stands with the first ones
        parts[f"[source] with {heading}"] = _with(asked, "[source]", module, config, steps)
    parts |= _of_rules()
    more = [
        {"columns": ["kind"], "takes": ["results", "late", "dead_letters"]},
        {"query": "SELECT 1", "transform": "m:f"},
    ]
    every = Asked.of(*(file_of(_FILES, {**SINKS["sqlite"], **each}) for each in more))["[sink]"]
    every = {name: fact for name, fact in every.items() if name not in sink.FORMATS["sqlite"].keys}
    parts["[sink] with every format"] = _with(every, "[sink]", sink, steps)
    for name, format_ in sink.FORMATS.items():
        asked = Asked.of(file_of(_FILES, {"format": name, **SINKS[name]}))["[sink]"]
        module = import_module(format_.__module__)
        parts[f'[sink] with format = "{name}"'] = _with({key: asked[key] for key in format_.keys}, "[sink]", module)
    return parts


def _with(asked: Facts, where: str, *modules: ModuleType) -> dict[str, tuple[Any, str, str]]:
    """Each key with what the first of the modules says that has a word for it, in the order in which they say it."""
    said: dict[tuple[str, str], str] = {}
    for module in modules:
        said |= {at: meaning for at, meaning in meanings(module).items() if at not in said}
    if unsaid := [name for name in asked if (where, name) not in said]:
        captions = ", ".join(module.__name__ for module in modules)
        raise ValueError(f"no caption says what {', '.join(unsaid)} of {where} means: add a line to one of {captions}")
    rank = [name for of, name in said if of == where]
    return {name: (*asked[name], said[where, name]) for name in sorted(asked, key=rank.index)}


def _of_rules() -> dict[str, dict[str, tuple[Any, str, str]]]:
    said = meanings(rules)
    builders = {"[rules]": Rules, **{f"[rules.{name}]": getattr(Rules, name) for name in rules._ONCE}}
    builders |= {f"[[rules.{name}]]": getattr(Rules, name) for name in rules._MANY}
    found: dict[str, dict[str, tuple[Any, str, str]]] = {}
    for where, builder in builders.items():
        for name, parameter in inspect.signature(builder).parameters.items():
            if name != "self" and (where != "[rules]" or name in rules._WORDS):
                default = tables._REQUIRED if parameter.default is parameter.empty else parameter.default
                found.setdefault(where, {})[name] = (default, _kind(str(parameter.annotation)), said.pop((where, name)))
    assert not said, f"rules/toml.py has words for {list(said)}, and no rule takes them"
    return found


def _kind(annotation: str) -> str:
    """A parameter's annotation in words."""
    words = {
        "Duration": "a duration", "OnGap": ", ".join(f'`"{each}"`' for each in OnGap.__args__), "bool": "true or false",
        "str | Iterable[str]": "a text or a list of texts", "Iterable[str]": "a list of texts",
    }  # fmt: skip
    return words.get(annotation.removesuffix(" | None"), "a text")


def pages() -> dict[str, str]:
    """The page of all keys."""
    parts = [
        "# Every key of a pipeline's file",
        "A pipeline is a TOML file. `waterclock run PIPELINE.toml` runs it, `waterclock run --check PIPELINE.toml` prints "
        "what is wrong with it. Paths are relative to the file. Tables in double brackets may stand several times.",
        'A duration is a text such as `"14 days"` or `"1 hour 30 minutes"` (units: us, ms, s, min, h, d, w), or whole '
        "microseconds.",
    ]
    for where, its in keys().items():
        name, _, rest = where.partition(" with ")
        rows = [
            (f"`{key}`", "" if "eft out" in said else _shown(default), kind, prose(said))
            for key, (default, kind, said) in its.items()
        ]
        parts += [
            f"## `{name}`{f' with {rest}' if rest else ''}",
            table(("key", "default", "must be", "meaning"), rows),
        ]
    return {"pipeline-keys.md": "\n\n".join(parts) + "\n"}


def _shown(default: Any) -> str:
    """A default as the file has it.

    >>> _shown(True), _shown(None), _shown("late")
    ('`true`', '', '`"late"`')
    """
    if default is tables._REQUIRED:
        return "needed"
    return "" if default in (None, "", (), []) or default == {} else f"`{json.dumps(default)}`"

"""Reference: every message with which a pipeline is refused or ends, as the code has it, by the part that it is about.

Rule 1: a message is a text with which the code makes an error, or one that a function gives back for it. What is put in
        when it is raised stands in capitals, or as three dots.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docsite.pages import ROOT
from docsite.tables import error_classes

SOURCE = ROOT / "src" / "waterclock"
# heading -> the folders and files whose messages stand below it; a file counts for the first one that fits
PARTS = {
    "The file": ("streaming/toml", "durations.py", "streaming/buckets.py", "kafka/settings.py", "errors.py"),
    "Rules": ("rules",),
    "Sources": (
        "streaming/files",
        "streaming/places",
        "streaming/layout.py",
        "spark/kafka",
        "spark/dataframe",
        "changes",
        "kafka",
    ),
    "Sinks": ("sinks", "spark/tables", "postgres"),
    "Checkpoint and state": (
        "spark/checkpoint",
        "spark/rescale",
        "spark/fresh.py",
        "spark/succession.py",
        "streaming/state",
    ),
    "Spark, Java and the rest": ("local", "spark", "streaming", "web", "cli.py"),
}
_SQL = re.compile(
    r"^(?:ALTER|ANALYZE|CREATE|DELETE|DROP|FROM|INSERT|LOCK|SELECT|SET|SHOW|UPDATE|WITH) "
    r"|^[a-z]+ (?:string|int|long|binary), "
)


def messages() -> dict[str, list[str]]:
    """Heading -> its messages, each once, by the alphabet."""
    found: dict[str, set[str]] = {heading: set() for heading in PARTS}
    seen = {SOURCE / "spark" / "progress.py"}  # whose lines are no messages
    for heading, places in PARTS.items():
        for place in places:
            path = SOURCE / place
            files = {path} if path.suffix else set(path.rglob("*.py"))
            for file in sorted(files - seen):
                found[heading] |= set(of_code(file.read_text(encoding="utf-8")))
            seen |= files
    return {heading: sorted(its, key=str.lower) for heading, its in found.items()}


@cache
def names_of_errors() -> frozenset[str]:
    return frozenset({*error_classes(), *(name for name in dir(builtins) if name.endswith("Error"))})


def of_code(code: str) -> Iterator[str]:
    """The messages of a file, some of them twice.

    >>> set(of_code("def f(path):\\n    raise UsageError(f'the folder {path} does not exist: make it')"))
    {'the folder PATH does not exist: make it'}
    """
    errors, tree = names_of_errors(), ast.parse(code)
    for node in ast.walk(_Filled(tree).visit(tree)):
        is_error = isinstance(node, ast.Call) and _name(node.func).lstrip("_") in errors | {"kind", "error"}
        if is_error or isinstance(node, ast.Raise | ast.Return | ast.Yield | ast.Assign):
            for text in _texts(node):
                text = re.sub(r"\{\w*\}", "...", " ".join(text.split()))
                if len(text.split()) >= (4 if is_error else 6) and not _SQL.match(text):
                    yield text


class _Filled(ast.NodeTransformer):
    """Puts a text of the module, or one that it imports from a module of ours, in the place of its name."""

    def __init__(self, tree: ast.Module) -> None:
        self._texts: dict[str, str] = {}
        for each in tree.body:
            file = SOURCE.parent.joinpath(*(getattr(each, "module", None) or "").split(".")).with_suffix(".py")
            if isinstance(each, ast.ImportFrom) and file.is_relative_to(SOURCE) and file.is_file():
                there = _texts_of_file(file)
                self._texts |= {name.name: there[name.name] for name in each.names if name.name in there}
        self._texts |= _texts_of(self.visit(tree))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self._texts[node.id]) if node.id in self._texts else node


@cache
def _texts_of_file(file: Path) -> dict[str, str]:
    return _texts_of(ast.parse(file.read_text(encoding="utf-8")))


def _texts_of(tree: ast.Module) -> dict[str, str]:
    """The texts of a module that have a name."""
    assigned = [each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)]
    return {_name(each.targets[0]): text for each in assigned if (text := _text(each.value)) is not None}


def _texts(node: ast.AST) -> Iterator[str]:
    """Whole texts inside of an expression; not the parts that one is put together from."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and (text := _text(node)) is not None:
        yield text
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.FormattedValue):
        return _text(node.value)
    if isinstance(node, ast.JoinedStr):
        text = "".join(_text(part) or f"\0{_put_in(part)}\0" for part in node.values)
        text = re.sub(r"(\0[.\w]+\0)(\0[.\w]+\0)+", r"\1...", text)
        return re.sub(r"(?<=\w)\0[.\w]+\0|\0[.\w]+\0(?=\w)", "...", text).replace("\0", "")  # inside of a word
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is right is None else (left or "...") + (right or "...")
    return None


# what says too little as a name of the code, or looks like a word of SQL
_CLEARER = {
    **dict.fromkeys(("SAID", "STRERROR", "ERROR"), "REASON"),
    "WHERE": "PLACE",
    "DESCRIBE": "TABLE",
    "GIVEN": "VALUE",
}


def _put_in(part: ast.AST) -> str:
    """What stands for a value: its name in capitals. A function that is called is no name of what it gives; what it is
    called with is, or whose it is.

    >>> _put_in(ast.parse("self._path.name", mode="eval").body), _put_in(ast.parse("', '.join(names)", mode="eval").body)
    ('NAME', 'NAMES')
    >>> texts = "totals.get('held')", "words_of(error)", "where", "next()"
    >>> [_put_in(ast.parse(text, mode="eval").body) for text in texts]
    ['TOTALS', 'REASON', 'PLACE', '...']
    """
    value = part.value if isinstance(part, ast.FormattedValue) else part
    called = {id(each.func) for each in ast.walk(value) if isinstance(each, ast.Call)}
    named = (each for each in ast.walk(value) if isinstance(each, ast.Name | ast.Attribute) and id(each) not in called)
    names = [
        name
        for each in named
        if (name := _name(each).strip("_").upper()) not in {"SELF", "STR", "MAP", "OS", "SOCKET", "JSON"}
    ]
    word = _CLEARER.get(names[0], names[0]) if names else ""
    return word if re.fullmatch(r"[A-Z_]{2,}", word) else "..."


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def pages() -> dict[str, str]:
    """The page of all messages."""
    parts = [
        "# Messages of a pipeline",
        "An error is one sentence that names the cause and what to do. Words in capitals and three dots stand for what is "
        "put in. A message about the file's content begins with the file's path.",
    ]
    for heading, its in messages().items():
        parts += [f"## {heading}", "\n".join(f"- `` {text} ``" for text in its)]
    return {"messages.md": "\n\n".join(parts) + "\n"}

"""Reference: public Python names. A module under `waterclock` is public if it has `__all__`; what stands there has a page.

Rule 1: nothing is imported: signatures and docstrings are read from the sources. That needs no compiler and no extra.
Rule 2: a name that several modules have stands on the page of the first of them, and the others link to it.
Rule 3: what is compiled from a .pyx is shown by its twin in plain Python, with the members that both have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import griffe

from docsite.pages import ROOT

_FIRST = ("waterclock", "waterclock.testing")
_PROMPTS = re.compile(r"^( *)>>> .*\n(?:\1\S.*(?:\n|\Z)|\1 +\S.*(?:\n|\Z))*", re.M)


class Prose(griffe.Extension):
    """Docstrings as Markdown: prompts and their answers as blocks, without the signature that is there for C."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Of every object, for mkdocstrings too (mkdocs.yml names this module)."""
        if obj.docstring is not None:
            text = obj.docstring.value.partition("\n--\n")[2] or obj.docstring.value
            obj.docstring.value = _PROMPTS.sub(
                lambda found: f"{found[1]}```pycon\n{found[0].rstrip()}\n{found[1]}```\n", text.strip("\n") + "\n"
            ).strip()


@cache
def _package() -> griffe.Module:
    found = griffe.load(
        "waterclock",
        search_paths=[ROOT / "src"],
        allow_inspection=False,
        resolve_aliases=True,
        extensions=griffe.load_extensions(Prose),
    )
    assert isinstance(found, griffe.Module)
    return found


@cache
def modules() -> dict[str, griffe.Module]:
    """The public modules by their names, in the order of their pages."""
    found = {each.path: each for each in (_package(), *_package().modules.values()) if names(each)}
    return {name: found[name] for name in sorted(found, key=lambda name: (name not in _FIRST, name))}


def names(module: griffe.Module) -> list[str]:
    """What is public of it, without its version; of pytest's plugin the fixtures."""
    if module.exports:
        return sorted(str(name) for name in module.exports if not str(name).startswith("_"))
    return [name for name, each in module.functions.items() if any("fixture" in str(d.value) for d in each.decorators)]


def pages() -> dict[str, str]:
    """A page for each module, for mkdocstrings."""
    return {f"python/{name.removeprefix('waterclock.')}.md": _page(name, _for_mkdocstrings) for name in modules()}


def plain() -> dict[str, str]:
    """The same pages, as Markdown that stands for itself."""
    return {f"reference/python/{name.removeprefix('waterclock.')}.md": _page(name, _as_markdown) for name in modules()}


def _page(name: str, show: Any) -> str:
    module, above = modules()[name], list(modules())[: list(modules()).index(name)]
    caption = re.split(r"^Rule 1: ", module.docstring.value if module.docstring else "", flags=re.M)[0].rstrip()
    lines = [f"# {name}", caption]
    for each in names(module):
        home = next((other for other in above if _is_same(modules()[other], module, each)), None)
        if home is None:
            lines.append(show(f"{name}.{each}", *_found(module, each)))
        else:
            lines.append(f"## {each}\n\nSee [`{home}.{each}`]({home.removeprefix('waterclock.')}.md).")
    return "\n\n".join(lines) + "\n"


def _is_same(other: griffe.Module, module: griffe.Module, name: str) -> bool:
    return name in names(other) and other[name].canonical_path == module[name].canonical_path


def _found(module: griffe.Module, name: str) -> tuple[Any, list[str]]:
    """What a name stands for, and which members of it are shown."""
    target: Any = module[name]
    if target.is_module:  # a package of the same name lies beside what is imported
        target = _package()[module.imports[name].removeprefix("waterclock.")]
    target = target.final_target if target.is_alias else target
    if str(target.filepath).endswith(".pyi"):
        shared = {*target.members, *target.overloads}
        around = [each for each in target.module.parent.modules.values() if each is not target.module]
        target = next(m[target.name] for m in around if target.name in m.members and not m[target.name].is_alias)
        return target, [each for each in _members(target) if each in shared]
    return target, _members(target)


def _members(target: Any) -> list[str]:
    """A class's members with a docstring, inherited ones too. A sink is used by its constructor, its base says the rest;
    what a timer has for what stands on it is no promise to users (timer/driver.py)."""
    if not target.is_class or (target.name != "Sink" and {"begin", "commit", "rollback"} <= {*target.members}):
        return []
    inside = {*_package()["timer.driver.Driver"].members, "move_in"} if target.module.parent.name == "timer" else set()
    shown = (
        (name, each) for name, each in target.all_members.items() if not name.startswith("_") and name not in inside
    )
    return [name for name, each in shown if each.docstring]


def _values(target: Any) -> str:
    """Of an enumeration, its names and numbers."""
    if not target.is_class or not any("Enum" in str(base) for base in target.bases):
        return ""
    return "Values: " + ", ".join(
        f"`{name}` ({each.value})" for name, each in target.attributes.items() if name.isupper()
    )


def _for_mkdocstrings(name: str, target: Any, members: list[str]) -> str:
    shown = "\n".join(f"        - {each}" for each in members)
    return (
        f"::: {target.path}\n    options:\n      members:{chr(10) if shown else ' false'}{shown}\n\n{_values(target)}"
    )


def _as_markdown(name: str, target: Any, members: list[str]) -> str:
    return "\n\n".join((*_described(target, f"## {target.name}", members), _values(target)))


def _described(target: Any, heading: str, members: list[str]) -> Iterator[str]:
    yield heading
    if target.is_function or (target.is_class and "__init__" in target.all_members):
        shown = target if target.is_function else target.all_members["__init__"]
        yield f"```python\n{_signature(shown, target.name)}\n```"
    if target.docstring:
        yield target.docstring.value
    for each in members:
        yield from _described(target.all_members[each], f"### {target.name}.{each}", [])


def _signature(function: Any, name: str) -> str:
    text = function.signature(return_type=name == function.name, name=name)
    return re.sub(r"\((self|cls)(, /)?(, )?", "(", text, count=1)

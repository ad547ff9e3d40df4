"""The documents of the repository as pages of the site.

Rule 1: a document is read in the repository too, so its links are relative to it there. In the site a link to a document
        leads to its page, one to another file of the repository to a page that shows it (a picture stays a picture).
Rule 2: a document that is named in backticks, `docs/rules.md`, is a link in the site.
Rule 3: a link to a page that is not there is left as it is: the strict build reports it, with its line. Of other files it
        does not look, so they are looked for here.
Rule 4: a page that is made of the code is no file of the repository. There a link leads to its part of
        docs/reference/README.md, which says what the page is made of; in the site it leads to the page.
"""

from __future__ import annotations

import os.path
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = (
    "src/waterclock/web/console/page/steps.html"  # a page of the site as it is: steps/, with walks that are recorded
)
MADE = "docs/reference/README.md"
SHOWN = {
    ".py": "python",
    ".pyi": "python",
    ".pyx": "cython",
    ".toml": "toml",
    ".yml": "yaml",
    ".sh": "bash",
    ".sql": "sql",
}
RAW = {".png", ".svg", ".gif", ".gz", ".ico", ".css", ".html"}  # taken as they are
FENCED = re.compile(r"(^ *(?P<fence>```+|~~~+).*?^ *(?P=fence)[ ]*$)", re.M | re.S)
_LINK = re.compile(
    r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\]\([^)]*\))*\])\((?P<to>[^)\s#]*)(?P<rest>[^)]*)\)|`(?P<code>[^`\n]+)`"
)


def documents(root: Path = ROOT) -> dict[str, str]:
    """Each document's path in the repository -> its path in the site. Of README the site has its own: docs/index.md."""
    found = {
        path.relative_to(root).as_posix(): path.relative_to(root / "docs").as_posix() for path in _docs(root, ".md")
    }
    found.pop(MADE, None)
    results = root / "bench" / "results"
    records = ((path, path.relative_to(results).as_posix()) for path in sorted(results.rglob("*.md")))
    found |= {path.relative_to(root).as_posix(): f"records/{name.replace('README', 'index')}" for path, name in records}
    return found | {path.name: f"project/{path.name}" for path in sorted(root.glob("*.md")) if path.name != "README.md"}


def _docs(root: Path, ending: str) -> Iterator[Path]:
    yield from (path for path in sorted((root / "docs").rglob(f"*{ending}")) if path.is_file())


def stage(folder: Path, root: Path = ROOT) -> None:
    """Put all documents, what they link to and what lies beside them under docs into `folder`."""
    known = documents(root)
    for path in _docs(root, ""):
        if path.suffix != ".md":
            _copy(path, folder / path.relative_to(root / "docs"))
    for source, page in known.items():
        text = linked((root / source).read_text(encoding="utf-8"), source, page, known, folder, root)
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")


def linked(text: str, source: str, page: str, known: dict[str, str], folder: Path, root: Path = ROOT) -> str:
    """`text` of the document `source` with links that hold on `page` of the site; what they need is put into `folder`."""

    def target(to: str) -> str | None:
        at = os.path.normpath(os.path.join(os.path.dirname(source), to))
        if at in known:
            return known[at]
        if at == "README.md":
            return "index.md"
        if at == STEPS:
            return f"steps/{Path(at).name}"
        if not at.startswith("..") and (root / at).exists():
            return _shown(at, folder, root)
        if not at.endswith(".md"):
            raise ValueError(f"{source} links to {to}, which is not there: mend the link")
        return None

    def link(found: re.Match[str]) -> str:
        if (code := found["code"]) is not None:
            at = known.get(code)
            return f"[`{code}`]({_relative(at, page)})" if at and at != page else found[0]
        to, rest = found["to"], found["rest"]
        at: str | None
        if os.path.normpath(os.path.join(os.path.dirname(source), to)) == MADE:  # rule 4
            at, rest = f"reference/{rest[1:].replace('waterclock-', 'commands/')}.md", ""
        elif not to or re.match(r"[a-z][a-z0-9+.-]*:", to) or (at := target(to)) is None:
            return found[0]
        return f"{found['text']}({_relative(at, page)}{rest})"

    parts = FENCED.split(text)  # a text, a block, its fence, a text, ...
    parts[::3] = [_LINK.sub(link, part) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts)


def _relative(to: str, page: str) -> str:
    return os.path.relpath(to, os.path.dirname(page) or ".")


def _shown(name: str, folder: Path, root: Path) -> str:
    """The page that shows a file or folder of the repository; a picture as it is, one of docs where it lies there."""
    path = root / name
    if path.is_file() and path.suffix in RAW:
        page = name.removeprefix("docs/") if name.startswith("docs/") else f"source/{name}"
        _copy(path, folder / page)
        return page
    page = f"source/{name}.md"
    if path.is_dir():
        body = "\n".join(
            f"- `{each.name}{'/' * each.is_dir()}`" for each in sorted(path.iterdir()) if each.name[0] not in "._"
        )
    else:
        body = f"`````{SHOWN.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}`````"
    (folder / page).parent.mkdir(parents=True, exist_ok=True)
    (folder / page).write_text(f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{body}\n", encoding="utf-8")
    return page


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


# What the site has of each page beside its HTML -------------------------------------------------------------------


def title_and_summary(text: str) -> tuple[str, str]:
    """A page's heading, and the first sentence below it.

    >>> title_and_summary("# Timers\\n\\nCall it later. Or never.\\n")
    ('Timers', 'Call it later.')
    """
    text = FENCED.sub("", re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S))
    title = re.search(r"^# (.+)$", text, re.M)
    first = next(
        (each for each in re.split(r"\n\s*\n", text) if each.strip() and each.strip()[0] not in "#|>!-<:*"), ""
    )
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(first.split()))
    sentence = re.match(r".*?[.?](?=\s|$)", plain)
    return (title[1] if title else ""), (sentence[0] if sentence else plain).rstrip(":")

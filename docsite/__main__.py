"""`python -m docsite [FOLDER]`: build the site; a warning is an error.

1. The documents become pages in build/docs/pages (pages.py), and the reference is made of the code beside them.
2. mkdocs.yml's `nav` is expanded: FOLDER/* stands for the folder's pages that are named nowhere else.
3. Zensical makes the HTML of it, strictly: a page, file or heading that a link names has to be there.
4. Each page's Markdown is put beside its HTML, and llms.txt lists them by the sections of `nav`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from docsite import files, messages, pages, python, tables
from waterclock.trace import page as walks

STAGE = pages.ROOT / "build" / "docs"
SITE = pages.ROOT / "out" / "docs"
AGAIN = "The site was not built: mend this, and run `make docs` again."
Nav = list[Any]  # as YAML has it: "page.md", {"Title": "page.md"}, {"Title": [...]}


@cache
def reference() -> dict[str, str]:
    """Every generated page, by its path in the site."""
    found = {
        f"reference/{name}": text for each in (tables, files, messages, python) for name, text in each.pages().items()
    }
    return found | {"reference/index.md": _contents(found)}


def _contents(found: dict[str, str]) -> str:
    """The reference's first page: what is in it, and which of it is made of the code."""
    lines = [
        "# Reference",
        "",
        "Reference says what is. These pages are made of the code when the site is built: of the commands' parsers, of",
        "what the loader of a pipeline's file asks for, of the records behind each metric, of signatures and docstrings.",
        "So they cannot say what the code does not do. The guides by part are written by hand; tests hold what they name.",
        "",
    ]
    for heading, start in (("Commands", "commands/"), ("Tables", ""), ("Python, by module", "python/")):
        lines += [f"## {heading}", ""]
        for page, text in found.items():
            name = page.removeprefix("reference/")
            if name.startswith(start) and name.count("/") == bool(start):
                title, first = pages.title_and_summary(text)
                lines.append(f"- [{title}]({name}): {first}")
        lines.append("")
    return "\n".join(lines)


def expanded(nav: Nav, there: list[str]) -> Nav:
    """`nav` with the pages of `there` in the place of each pattern; a page that several patterns fit is the longest one's.

    >>> expanded(["a.md", {"Two": [{"b/x*": []}, {"b/*": ["z"]}]}], ["a.md", "b/x.md", "b/y.md", "b/z.md"])
    ['a.md', {'Two': ['b/x.md', 'b/z.md', 'b/y.md']}]
    """
    entries = list(flat(nav))
    patterns = [page for _, page in entries if page.endswith("*")]
    pages_of: dict[str, list[str]] = {}
    for page in set(there) - {page for _, page in entries}:
        fit = [each for each in patterns if fnmatch(page, each) and page.count("/") == each.count("/")]
        pages_of.setdefault(max(fit, key=len, default=""), []).append(page)

    def of(entry: Any) -> Nav:
        if isinstance(entry, str):
            return [entry]
        [(name, value)] = entry.items()
        if not name.endswith("*"):
            return [{name: [each for inner in value for each in of(inner)] if isinstance(value, list) else value}]
        rank = {f"{name.rpartition('/')[0]}/{first}.md": place for place, first in enumerate(value)}
        return sorted(pages_of.get(name, ()), key=lambda page: (rank.get(page, len(rank)), page))

    return [each for entry in nav for each in of(entry)]


def flat(nav: Nav, section: str = "") -> Iterator[tuple[str, str]]:
    """(first heading above it, page or pattern) of each entry."""
    for entry in nav:
        for name, value in entry.items() if isinstance(entry, dict) else [("", entry)]:
            if name.endswith("*"):
                yield section, name
            elif isinstance(value, list):
                yield from flat(value, section or name)
            else:
                yield section, value


def llms(nav: Nav, texts: dict[str, str], name: str, summary: str) -> str:
    """llms.txt: what it is, then each page's Markdown with the first sentence of it, by section."""
    lines, last = [f"# {name}", "", f"> {summary}", "", "Every page of the site is here as plain Markdown."], ""
    for section, page in flat(nav):
        if section != last:
            lines, last = [*lines, "", f"## {section}", ""], section
        title, first = pages.title_and_summary(texts[page])
        lines.append(f"- [{title}]({page}): {first}" if first else f"- [{title}]({page})")
    return "\n".join(lines) + "\n"


def stage(folder: Path) -> Nav:
    """Steps 1 and 2: the pages and the settings; the expanded `nav`."""
    shutil.rmtree(folder, ignore_errors=True)
    staged = folder / "pages"
    pages.stage(staged)
    for page, text in reference().items():
        (staged / page).parent.mkdir(parents=True, exist_ok=True)
        (staged / page).write_text(text, encoding="utf-8")
    (staged / "steps").mkdir()
    for name, text in walks.static(walks.worked()).items():
        (staged / "steps" / name).write_text(text, encoding="utf-8")
    settings = yaml.safe_load((pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    nav: Nav = expanded(settings["nav"], list(markdown(staged)))
    settings["plugins"][1]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(pages.ROOT / "src")]
    settings |= {"nav": nav, "docs_dir": "pages", "site_dir": "site"}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return nav


def make(folder: Path) -> None:
    """Step 3: HTML in folder/site."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    there = {**os.environ, "PYTHONPATH": str(pages.ROOT)}
    done = subprocess.run(command, cwd=folder, env=there, capture_output=True, text=True, check=False)
    if done.returncode:
        told = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr.partition("Traceback")[0])
        raise SystemExit(told + AGAIN)


def markdown(staged: Path) -> dict[str, str]:
    """Every page's Markdown; that of the Python names stands for itself, without mkdocstrings."""
    plain = python.plain()
    found = sorted(path.relative_to(staged).as_posix() for path in staged.rglob("*.md"))
    return {page: plain.get(page) or (staged / page).read_text(encoding="utf-8") for page in found}


def build(site: Path = SITE, folder: Path = STAGE) -> None:
    """The four steps. What lay in `site` goes."""
    try:
        nav = stage(folder)
    except ValueError as error:
        raise SystemExit(f"{error}. {AGAIN}") from error
    make(folder)
    texts = markdown(folder / "pages")
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(folder / "site", site)
    for page, text in texts.items():
        (site / page).write_text(text, encoding="utf-8")
    settings = yaml.safe_load((folder / "mkdocs.yml").read_text(encoding="utf-8"))
    about = llms(nav, texts, settings["site_name"], settings["site_description"])
    (site / "llms.txt").write_text(about, encoding="utf-8")
    print(f"{len(texts)} pages: {site / 'index.html'}")


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else SITE)

"""The site of the documents: it is built without a warning, its reference has all that the code has, and each page is plain
Markdown too."""

from __future__ import annotations

import argparse
import doctest
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("griffe")
pytest.importorskip("zensical")
pytest.importorskip("pyarrow")

from docsite import __main__ as site
from docsite import files, messages, pages, promises, python, tables

from waterclock import cli, errors, pytest_plugin
from waterclock.broker.settings import SETTINGS
from waterclock.rules import toml as rules
from waterclock.rules.model import Rules
from waterclock.streaming.toml import config, readers, sink, steps, topics
from waterclock.trace.scenario import SCENARIOS, SMALLEST

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.build(folder / "out", folder / "stage")
    return folder / "out"


def headings(page: str) -> list[str]:
    """Of the Markdown that stands for itself."""
    return re.findall(r"^##+ (.+)$", python.plain()[f"reference/python/{page}.md"], re.M)


# The reference has all that the code has -----------------------------------------------------------------------


MODULES = [
    path.parent.name if path.name == "__init__.py" else path.stem
    for path in [*sorted((ROOT / "src" / "waterclock").glob("*/__init__.py")), ROOT / "src/waterclock/testing.py"]
    if "\n__all__ = " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", ["", *MODULES])
def test_a_public_name_is_on_a_page(module: str) -> None:
    names = import_module(f"waterclock.{module}".rstrip(".")).__all__
    public = {name for name in names if not name.startswith("_")}
    assert public
    assert public - set(headings(module or "waterclock")) == set()


def test_a_method_of_a_public_class_is_on_its_page_and_a_name_of_ours_is_not() -> None:
    shown = headings("waterclock")
    for name in ("Timer.call_later", "TimingWheel.add", "Rules.expect", "Purgatory.check_and_complete"):
        assert name in shown
    for name in ("Timer.add_in_child", "TimingWheel.snapshot", "Timer._add"):
        assert name not in shown


def test_a_fixture_of_pytest_is_on_a_page() -> None:
    fixtures = [
        name for name, each in vars(pytest_plugin).items() if type(each).__name__ == "FixtureFunctionDefinition"
    ]
    assert sorted(fixtures) == sorted(headings("pytest_plugin"))


def test_a_command_and_each_of_its_options_is_on_a_page() -> None:
    def options(parser: argparse.ArgumentParser) -> set[str]:
        return {option for action in parser._actions for option in action.option_strings} - {"-h", "--help"}

    missing, counted = [], 0
    for parser in tables.commands(cli._parser()):
        if (words := parser.prog.split())[1:]:
            page = site.reference()[f"reference/commands/{words[1]}.md"]
            part = re.split(rf"^##? {parser.prog}$", page, flags=re.M)[1]
            part = re.split(r"^## ", part, flags=re.M)[0]
            missing += [
                (parser.prog, option)
                for option in options(parser)
                if not re.search(rf"^\| `[^`]*{option}\b", part, re.M)
            ]
            counted += 1
    assert missing == []
    assert counted > 30


def test_a_key_of_a_pipelines_file_is_on_a_page() -> None:
    page = site.reference()["reference/pipeline-keys.md"]
    parts = {
        head: set(re.findall(r"^\| `(\w+)`", text, re.M))
        for head, _, text in (part.partition("\n") for part in page.split("\n## ")[1:])
    }
    source = [parts[f"`[source]` with {heading}"] for heading in files.SOURCES]
    for names, there in zip((config._FILE_NAMES, readers._NAMES, topics.NAMES), source, strict=True):
        assert set(names) - {"format"} == there - {"format"}
    for name, format_ in sink.FORMATS.items():
        assert set(format_.keys) == parts[f'`[sink]` with format = "{name}"']
    assert parts["`[sink]` with every format"] == {"format", "mode", "takes", "columns", *steps.NAMES}
    assert parts["`[rules]`"] == rules._WORDS
    for name in (*rules._ONCE, *rules._MANY):
        brackets = f"[rules.{name}]" if name in rules._ONCE else f"[[rules.{name}]]"
        assert set(inspect.signature(getattr(Rules, name)).parameters) - {"self"} == parts[f"`{brackets}`"]
    assert {f"`[{name}]`" for name in config._TABLES} - {"`[source]`", "`[sink]`"} <= set(parts)


def test_a_word_of_a_caption_is_a_key_and_says_something() -> None:
    keys = {(where.split(" with ")[0], key) for where, its in files.keys().items() for key in its}
    captions = [
        config,
        topics,
        readers,
        steps,
        sink,
        rules,
        *(import_module(of.__module__) for of in sink.FORMATS.values()),
    ]
    said = {word: meaning for module in captions for word, meaning in files.meanings(module).items()}
    assert set(said) == keys
    assert [word for word, meaning in said.items() if len(meaning.split()) < 3] == []


def test_a_key_shows_the_default_that_the_loader_takes() -> None:
    keys = files.keys()
    assert keys["[time]"]["close"][:2] == (True, "true or false")
    assert keys['[source] with format = "kafka"']["per_batch"][0] == 100_000
    assert keys['[sink] with format = "postgres"']["schema"][0] == "public"
    assert keys["[rules.order]"]["on_gap"][:2] == ("skip", '`"skip"`, `"hold"`, `"dead_letter"`')


def test_a_metric_is_on_a_page_as_prometheus_is_shown_it() -> None:
    parts = (ROOT / "tests" / "web" / "pages.txt").read_text(encoding="utf-8").split("== ")[1:]
    for command, _, text in (part.partition("\n") for part in parts):
        shown = {name: (kind, labels, said) for name, kind, labels, said in tables.metrics(*tables.RECORDS[command])}
        helps = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.M))
        assert {name: (kind, said) for name, (kind, _, said) in shown.items()} == {
            name: (kind, helps[name]) for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M)
        }
        for sample, labels in re.findall(r"^(waterclock_\w+?)(?:_sum|_count)?(?:\{(.+)\})? ", text, re.M):
            assert set(re.findall(r'(\w+)="', labels)) <= set(shown[sample][1])
        assert [name for name in shown if f"`{name}`" not in site.reference()["reference/metrics.md"]] == []


def test_an_error_an_exit_code_and_a_setting_of_the_broker_are_on_a_page() -> None:
    page, settings = site.reference()["reference/errors.md"], site.reference()["reference/broker-settings.md"]
    classes = [name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(classes) > 8
    assert [name for name in [*classes, "LogDamaged"] if f"| `{name}` |" not in page] == []
    assert re.findall(r"^\| `(\d)` \| (.+) \|$", page, re.M) == [("0", "done"), ("1", "failed"), ("2", "wrong usage")]
    assert [name for name in SETTINGS if f"| `{name}` |" not in settings] == []


def test_a_text_that_a_module_imports_stands_in_its_messages() -> None:
    """It was BEHIND_A_LOSS, in place of what to do."""
    page = site.reference()["reference/messages.md"]
    assert (
        page.count('are gone before they were read: a topic was cut shorter, made anew or deleted. Set on_loss = "')
        == 1
    )
    assert "BEHIND_A_LOSS" not in page


# Documents as pages --------------------------------------------------------------------------------------------


def test_a_link_that_holds_in_the_repository_holds_in_the_site(tmp_path: Path) -> None:
    for name in ("docs/a.md", "docs/how-to/b.md", "src/x.py", "bench/p.png", "docs/pictures/w.svg", "docs/how-to/c.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# There\n")
    known = pages.documents(tmp_path)

    def linked(text: str) -> str:
        return pages.linked(text, "docs/how-to/b.md", "how-to/b.md", known, tmp_path / "out", tmp_path)

    assert linked("[a](../a.md#part) and [c](c.md)") == "[a](../a.md#part) and [c](c.md)"
    made = "[run](../reference/README.md#waterclock-run), [keys](../reference/README.md#keys)"
    assert linked(made) == "[run](../reference/commands/run.md), [keys](../reference/keys.md)"
    assert linked("see `docs/a.md`, `docs/how-to/b.md`") == "see [`docs/a.md`](../a.md), `docs/how-to/b.md`"
    assert linked("[x](../../src/x.py) ![w](../pictures/w.svg)") == "[x](../source/src/x.py.md) ![w](../pictures/w.svg)"
    assert linked("![p](../../bench/p.png) [src](../../src)") == "![p](../source/bench/p.png) [src](../source/src.md)"
    assert (tmp_path / "out/source/bench/p.png").exists()
    assert "```python\n# There\n" in (tmp_path / "out/source/src/x.py.md").read_text()
    assert "- `x.py`" in (tmp_path / "out/source/src.md").read_text()
    for same in (
        "[no](no.md)",
        "[web](https://a.b/c.md)",
        "```\n[x](../../src/x.py) `docs/a.md`\n```",
        "[here](#part)",
    ):
        assert linked(same) == same
    with pytest.raises(ValueError, match=r"^docs/how-to/b\.md links to no\.png, which is not there"):
        linked("![no](no.png)")


def test_every_page_is_in_the_table_of_contents_once(tmp_path: Path) -> None:
    nav = [page for _, page in site.flat(site.stage(tmp_path))]
    there = [page for page in site.markdown(tmp_path / "pages") if not page.startswith("source/")]
    assert sorted(nav) == there


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nsite_dir: site\ndocs_dir: pages\n")
    (tmp_path / "pages" / "index.md").write_text("# Home\n\n[part](#home)\n")
    site.make(tmp_path)
    for wrong in ("[a](no.md)", "[a](#nothing)"):
        (tmp_path / "pages" / "index.md").write_text(f"# Home\n\n{wrong}\n")
        with pytest.raises(SystemExit, match=r"(?s)index\.md:3.*The site was not built") as error:
            site.make(tmp_path)
        assert "\x1b" not in str(error.value)


# The site ------------------------------------------------------------------------------------------------------


def test_each_page_is_there_as_markdown_and_llms_txt_lists_it(built: Path) -> None:
    html = {path.relative_to(built).with_suffix(".md").as_posix() for path in built.rglob("*.html")}
    html -= {"404.md", "steps/steps.md"}
    there = {path.relative_to(built).as_posix() for path in built.rglob("*.md")}
    assert html == there
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", (built / "llms.txt").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(page for page in there if not page.startswith("source/"))
    assert [page for page in there if re.search(r"^::: ", (built / page).read_text(encoding="utf-8"), re.M)] == []


def test_the_walks_through_a_wheel_are_a_page_that_needs_no_server(built: Path) -> None:
    assert 'href="../steps/steps.html"' in (built / "explanation/why-a-wheel.html").read_text(encoding="utf-8")
    page = (built / "steps/steps.html").read_text(encoding="utf-8")
    assert {"steps.js", "console.css", "icon.svg"} <= set(re.findall(r'(?:src|href)="([^"]+)"', page))
    walks = json.loads((built / "steps/steps.json").read_text(encoding="utf-8"))
    assert [walk["name"] for walk in walks] == [*SCENARIOS, SMALLEST.name]


def test_a_public_class_has_its_signature_and_its_inherited_methods_in_html(built: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (built / "reference/python/waterclock.html").read_text(encoding="utf-8"))
    assert re.search(r"AsyncTimer\(\s*tick_s: float = 0.001", text)
    assert re.search(r"AsyncTimer\(.*call_later\(.*Debounce\(", text, re.S)
    assert "&gt;&gt;&gt; timer.call_at(60.0, print).when()" in text  # prompts are blocks, and no quotes


def test_a_page_fetches_nothing_from_elsewhere(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"?(https?:[^\"\s>]+)", text)
        assert fetched == [], page


def test_a_promise_names_tests_of_ours_outside_of_samples(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("It never fails (`test_it`).\n\n```python\ndef test_yours(): ...\n```\n")
    (tmp_path / "docs" / "a.md").write_text("`test_it`, `test_that`, test_file.py\n")
    assert promises.named(tmp_path) == {"test_it": ["README.md", "docs/a.md"], "test_that": ["docs/a.md"]}
    assert set(promises.named()) <= promises.ours()
    assert len(promises.named()) > 150


@pytest.mark.parametrize(
    ("forms", "outcome"),
    [
        ("", "passed"),
        ('<skipped type="pytest.skip" message="no server"/>', "not run"),
        ('<skipped type="pytest.xfail" message="on purpose"/>', "differs"),
        ('<error message="no such fixture"/>', "failed"),
    ],
)
def test_what_came_of_a_promise_is_what_pytest_reports(forms: str, outcome: str) -> None:
    report = f'<suite><testcase name="test_it[a]">{forms}</testcase><testcase name="test_other"/></suite>'
    assert promises.outcomes(report, ["test_it"])["test_it"][0] == outcome
    passed_too = report.replace("<suite>", '<suite><testcase name="test_it[b]"/>')
    assert promises.outcomes(passed_too, ["test_it"])["test_it"][0] == ("failed" if outcome == "failed" else "passed")


def test_what_the_generator_says_in_its_docstrings_is_so() -> None:
    modules = (site, pages, tables, files, messages, python, promises)
    assert [each.__name__ for each in modules if doctest.testmod(each).failed] == []
    assert sum(doctest.testmod(each).attempted for each in modules) > 3

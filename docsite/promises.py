"""`python -m docsite.promises [OPTIONS OF PYTEST]`: the tests that documents name for their promises are run.

A promise's test stands in backticks; what stands in a block is a sample.

Rule 1: a promise holds if its test ran and passed, in each of its forms. Ends with 1 if a test failed or is none of ours.
Rule 2: what did not run is listed with its reason; a test of several forms counts as passed if one ran. It is no failure:
        by default what needs servers or takes minutes is left out, as in `make test`. Nor is a test that has to fail, where
        a document says that waterclock differs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from docsite.pages import FENCED, ROOT, documents

LEFT_OUT = ("not run", "left out by its marks: make test-long, test-servers or test-tables runs it")
_RANK = ("not run", "differs", "passed", "failed")  # of a test of several forms the last one counts
DEFAULT = ["-m", "not long and not servers"]


def named(root: Path = ROOT) -> dict[str, list[str]]:
    """Each test that a document names -> the documents that do."""
    found: dict[str, list[str]] = defaultdict(list)
    for document in ("README.md", *documents(root)):
        text = FENCED.sub("", (root / document).read_text(encoding="utf-8"))
        for name in sorted(set(re.findall(r"`(test_\w+)`", text))):
            found[name].append(document)
    return dict(sorted(found.items()))


def ours(root: Path = ROOT) -> set[str]:
    """The tests that there are."""
    files = (root / "tests").rglob("*.py")
    return {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}


def outcomes(report: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """Of each name "passed", "failed", "differs" or "not run", and why; `report` is pytest's, as JUnit's XML.

    >>> cases = '<testcase name="test_a[1]"/><testcase name="test_a[2]"><failure message="no"/></testcase>'
    >>> cases += '<testcase name="test_b"><skipped message="needs PostgreSQL"/></testcase>'
    >>> outcomes(f"<suite>{cases}</suite>", ["test_a", "test_b", "test_c"])["test_a"]
    ('failed', 'no')
    >>> outcomes(f"<suite>{cases}</suite>", ["test_b"]), outcomes("<suite/>", ["test_c"]) == {"test_c": LEFT_OUT}
    ({'test_b': ('not run', 'needs PostgreSQL')}, True)
    """
    found = dict.fromkeys(names, LEFT_OUT)
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = str(case.get("name")).partition("[")[0]
        what = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        came = ("passed", "") if what is None else (_outcome(what), " ".join(str(what.get("message")).split())[:200])
        if name in found and _RANK.index(came[0]) >= _RANK.index(found[name][0]):
            found[name] = came
    return found


def _outcome(what: ElementTree.Element) -> str:
    if what.tag != "skipped":
        return "failed"
    return "differs" if what.get("type") == "pytest.xfail" else "not run"


def main(options: list[str]) -> int:
    """Run them; the process's exit code."""
    promised, there = named(), ours()
    if missing := [f"{name}, named in {', '.join(promised[name])}" for name in promised if name not in there]:
        print("No such test:", *missing, sep="\n  ")
        return 1
    print(f"{len(promised)} tests are named by documents; they are run now", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = ["-k", " or ".join(promised), f"--junitxml={report}", *(options or DEFAULT)]
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rN", "tests", *chosen], cwd=ROOT, check=False
        ).returncode
        if not report.exists():
            return code
        found = outcomes(report.read_text(encoding="utf-8"), list(promised))
    for what in ("differs", "not run", "failed"):
        for name, (outcome, why) in found.items():
            if outcome == what:
                print(f"{what}: {name} ({', '.join(promised[name])}): {why}")
    count = {what: sum(outcome == what for outcome, _ in found.values()) for what in _RANK}
    print(
        f"promises: {count['passed']} passed, {count['failed']} failed, {count['differs']} say where waterclock differs, "
        f"{count['not run']} not run here"
    )
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

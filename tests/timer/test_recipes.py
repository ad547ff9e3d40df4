"""The recipes of docs/timers.md for pytest-asyncio and anyio: each runs as it stands there, in a pytest run of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "timers.md").read_text()


def blocks(package: str) -> list[str]:
    """The Python of a recipe: what goes into conftest.py, if anything does, and the test."""
    recipe = DOCS.split(f"With `{package}`")[1].split("With `")[0].split("\n`sockets` and")[0]
    return re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)


@pytest.mark.parametrize("package", ["pytest-asyncio", "anyio"])
def test_a_recipe_of_the_documentation_runs(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package.replace("-", "_"))
    *conftest, test = blocks(package)
    (tmp_path / "conftest.py").write_text("\n".join(conftest))
    (tmp_path / "test_it.py").write_text(test)
    one = "asyncio_default_fixture_loop_scope=function"  # which pytest-asyncio warns without, at its start
    options = ["-o", one] if package == "pytest-asyncio" else ["-p", "no:asyncio"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr

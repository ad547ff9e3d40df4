"""How a demo tells what came of it: a file, and a table for people or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def report(found: dict[str, Any], folder: Path, as_json: bool, table_of: Callable[[dict[str, Any]], Table]) -> None:
    """Write `report.json` into the demo's folder, and print it, or its table on stderr."""
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        Console(stderr=True).print(table_of(found))

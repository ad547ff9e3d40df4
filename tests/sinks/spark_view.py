"""What Spark takes for the files of a folder, by its own way through `_spark_metadata`; a real one agrees (tests/spark)."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def seen_by_spark(folder: Path) -> list[str]:
    """The names of the files that Spark reads there; an error where Spark has one."""
    log = folder / "_spark_metadata"
    numbers = {int(path.name.partition(".")[0]) for path in log.iterdir() if not path.name.startswith(".")}
    last, previous = sorted((int(path.stem) for path in log.glob("[0-9]*.compact")), reverse=True)[:2]
    distance = last - previous
    start = (max(numbers) + 1) // distance * distance - 1
    found = list[str]()
    for number in range(start, max(numbers) + 1):
        name = f"{number}.compact" if (number + 1) % distance == 0 else str(number)
        version, *lines = (log / name).read_text().split("\n")
        assert version == "v1"
        found += [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines]
    assert {str(Path(path).parent) for path in found} == {str(folder)}
    return [Path(path).name for path in found]

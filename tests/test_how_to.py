"""The pages of docs/how-to: every sample runs from top to bottom, in a folder of its own, and prints what the page shows.

Rule 1: a port that a page names is replaced by a free one. A command that names none gets it as an option.
Rule 2: what a page needs beside waterclock stands in NEEDS; without it the page is skipped, by name.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.samples import run_page
from tests.test_readme import ROOT, known_tests

PAGES: Final = sorted((ROOT / "docs" / "how-to").glob("*.md"))
# page -> the packages, or the program, without which it cannot run here
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "fastapi": ("fastapi", "uvicorn"),
    "faststream": ("faststream",),
    "django": ("django",),
    "sqlalchemy": ("sqlalchemy",),
}
LONG: Final[Mapping[str, int]] = {}  # page -> its seconds on a quiet machine
# of a command whose port is Kafka's own where nothing is said: what says another one
PORT: Final = {
    "waterclock relay --embedded out/relay": " --port {port}",
    "waterclock broker --data out/broker": " --port {port}",
    **{f"waterclock relay {verb}": " --bootstrap 127.0.0.1:{port}" for verb in ("send", "read", "ls", "cancel", "show")},
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def on_free_ports(text: str) -> dict[str, str]:
    """What is to be put in a page's place of it. Rule 1."""
    ports = {shown: free_port() for shown in sorted({*re.findall(r"127\.0\.0\.1:(\d+)", text)})}
    put = {f"127.0.0.1:{shown}": f"127.0.0.1:{port}" for shown, port in ports.items()}
    put |= {f"--port {shown}": f"--port {port}" for shown, port in ports.items() if f"--port {shown}" in text}
    if "9092" in ports:
        more = {command: option.format(port=ports["9092"]) for command, option in PORT.items()}
        put |= {f"{command} ": f"{command}{option} " for command, option in more.items() if f"{command} " in text}
        put |= {f"{command}\n": f"{command}{option}\n" for command, option in more.items() if f"{command}\n" in text}
    return put


def parameters() -> list[object]:
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.long(seconds=LONG[page.stem])] if page.stem in LONG else [])
        for page in PAGES
    ]


@pytest.mark.parametrize("page", parameters())
def test_a_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    for need in NEEDS.get(page.stem, ()):
        if not (find_spec(need) or shutil.which(need)):
            pytest.skip(f"{need} is not installed")
    folder = tmp_path / page.stem
    folder.mkdir()
    assert run_page(page, folder, put=on_free_ports(page.read_text(encoding="utf-8"))) > 0

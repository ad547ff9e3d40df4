"""A browser for tests: Chromium without a window, and what goes wrong in a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium, or a skip that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or pytest.skip("no chromium on this machine")
    quiet = ("background-networking", "component-update", "sync", "default-apps", "extensions")
    args = ["--no-sandbox", "--disable-gpu", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with playwright.sync_playwright() as running:
        chrome = running.chromium.launch(executable_path=program, args=args)
        yield chrome
        chrome.close()


def window(browser: Any, width: int, **more: Any) -> tuple[Any, list[str]]:
    """An empty window of that width, and the list of all that goes wrong in it."""
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, **more)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    return page, wrong

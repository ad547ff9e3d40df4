"""A walk in a browser: the console's dial with a slider, a step at a time, each with its sentence.

    /console/steps.html     the page; /console/steps.json the walks: what `--json` prints, and `said` in each step

Rule 1: the page is given whole walks and turns nothing itself. So it is also a page without a server: `static`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from waterclock.trace.moments import by_letter, since
from waterclock.trace.picture import sentence
from waterclock.trace.scenario import SCENARIOS, SMALLEST, load_scenario
from waterclock.trace.walk import Step, Walk, plain
from waterclock.web.console.console import page_file
from waterclock.web.server import GUARDED, JSON, NoSuchPage, Page, PageServer

PAGE: Final = "steps.html"
WALKS: Final = "steps.json"
FILES: Final = (PAGE, "steps.js", "dial.js", "parts.js", "console.css", "icon.svg")
WORKED: Final = (*SCENARIOS, SMALLEST.name)


def record(walk: Walk, rounding: str, steps: Sequence[Step]) -> dict[str, Any]:
    """A walk's steps as `waterclock trace --json` has them, each with what is said of it."""
    scenario = walk.scenario
    at = by_letter(scenario.letter, scenario.start_ms) if scenario.letter else since(scenario.start_ms)
    return {
        "name": scenario.name,
        "note": scenario.note or "timers of your own",
        "tick_ms": scenario.tick_ms,
        "wheel_size": list(scenario.slots),
        "start_ms": scenario.start_ms,
        "rounding": rounding,
        "steps": [{**plain(step), "said": sentence(step, at)} for step in steps],
    }


def worked(rounding: str = "early") -> list[dict[str, Any]]:
    """The walks through the worked examples."""
    walks = [Walk(load_scenario(name), rounding) for name in WORKED]
    return [record(walk, rounding, [walk.begin(), *walk.steps()]) for walk in walks]


def static(walks: list[dict[str, Any]]) -> dict[str, str]:
    """The files of the page by name, for any place where files are served."""
    return {WALKS: json.dumps(walks)} | {name: page_file(name)[1] for name in FILES}


def serve(walks: list[dict[str, Any]]) -> PageServer:
    """The page on this machine, until `close`."""
    files = static(walks)

    def page(text: str) -> Page:
        name = text or PAGE
        if name not in files:
            raise NoSuchPage(f"there is no file {name}: open {GUARDED}{PAGE}")
        return (JSON, files[name]) if name == WALKS else page_file(name)

    return PageServer({}, 0, {GUARDED: page})

"""The walk in a browser: each step of the record, its sentence, and the wheel that is drawn of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import chromium, window
from tests.web.reading import get
from waterclock import cli
from waterclock.trace.page import record, serve, static, worked
from waterclock.trace.scenario import build_scenario
from waterclock.trace.walk import Walk, plain


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as chrome:
        yield chrome


def test_a_record_has_the_steps_of_json_and_a_sentence_for_each() -> None:
    walk = Walk(build_scenario("1s", "3", "1s,4s"), "early")
    steps = [walk.begin(), *walk.steps()]
    found = record(walk, "early", steps)
    assert [{key: value for key, value in step.items() if key != "said"} for step in found["steps"]] == [
        plain(step) for step in steps
    ]
    assert [step["said"] for step in found["steps"]] == [
        "the wheel is made: one level, nothing waits",
        "add 1s for 1s: into level 1, bucket 1",
        "add 4s for 4s: into level 2, bucket 1",
        "the clock goes to 1s; ran 1s (level 1, bucket 1)",
        "the clock goes to 3s; ran nothing; down 4s: level 2, bucket 1 to level 1, bucket 1",
        "the clock goes to 4s; ran 4s (level 1, bucket 1)",
    ]


def test_every_worked_example_is_there_and_every_file_of_the_page() -> None:
    names = [walk["name"] for walk in worked()]
    assert names == ["seven-tasks", "three-levels", "clock-face", "precise-advance", "three-buckets"]
    files = static(worked())
    for text in files.values():
        assert set(re.findall(r"""(?:src|href|from |fetch\()=?["']([\w.]+|\./[\w.]+)["']""", text)) <= {
            name for file in files for name in (file, f"./{file}")
        }


@pytest.mark.browser
def test_the_slider_shows_each_step_as_the_record_has_it(browser: Any) -> None:
    walks = worked()
    with serve(walks) as server:
        page, wrong = window(browser, 360)
        page.goto(f"{server.url}/console/steps.html")
        said = page.locator("#said")
        said.get_by_text("the wheel is made").wait_for()
        page.select_option("#which", "clock-face")  # levels of 60, 60 and 12 buckets
        (face,) = [walk for walk in walks if walk["name"] == "clock-face"]
        page.locator("#step").focus()
        for step in face["steps"][1:]:
            page.keyboard.press("ArrowRight")
            assert said.inner_text() == step["said"]
            drawn = json.loads(page.locator("#dial").get_attribute("data-levels"))
            held = {(n, int(bucket)): count for n, level in enumerate(drawn, 1) for bucket, count in level.items()}
            assert held == {(one["level"], one["bucket"]): len(one["timers"]) for one in step["after"]["buckets"]}
        assert page.locator("#on").is_disabled()
        assert page.locator("#number").inner_text() == f"{len(face['steps']) - 1} of {len(face['steps']) - 1}"
        page.locator("#back").click()
        assert said.inner_text() == face["steps"][-2]["said"]
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert wrong == []
        page.close()


def test_the_command_serves_it_until_it_is_ended() -> None:
    command = [sys.executable, "-m", "waterclock.cli", "trace", "--tasks", "1s,2s", "--tick", "1s", "--console"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"step through it at (\S+)/steps.html\n", process.stdout.readline())
        assert found is not None
        _, walks, _ = get(f"{found[1]}/steps.json")
        status, _, _ = get(f"{found[1]}/other")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert [walk["name"] for walk in json.loads(walks)] == ["your own"]
    assert status == 404


def test_what_prints_does_not_go_with_a_browser(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "--console", "--json"]) == 2
    assert "leave one out" in capsys.readouterr().err

"""What the main job says: what it is about before anything runs, and where everything lies when it has run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.examples.test_fines_report import ANSWERS, WRONG
from waterclock.examples.fines import main


@pytest.fixture(params=[ANSWERS, WRONG], ids=["right", "wrong"])
def found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A job that comes to this answer at once."""
    answer: dict[str, Any] = request.param
    monkeypatch.setattr(main, "_session", lambda folder: SimpleNamespace(java="Java 21"))
    monkeypatch.setattr(main, "run_pipeline", lambda *_: None)
    monkeypatch.setattr(main, "answers", lambda *_: answer)
    monkeypatch.setattr(main, "write_report", lambda *_: None)
    return answer


def test_first_it_says_what_it_does_and_last_where_everything_lies(
    found: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main.demo(tmp_path / "out")
    told = capfd.readouterr()

    assert code == (found["verdict"] != "right")
    assert told.err.startswith("In 10,000 real traffic fines each penalty stands exactly 60 days after")
    assert [line.split()[-1] for line in told.err.splitlines()[-4:]] == [
        str(tmp_path / "out" / name) for name in ("fines.png", "report.html", "fines.db", "report.json")
    ]
    assert told.out == ""


def test_for_programs_it_prints_the_answer_and_nothing_else(
    found: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    main.demo(tmp_path / "out", as_json=True)
    told = capfd.readouterr()

    assert json.loads(told.out) == found
    # librdkafka's threads of other tests in this process write lines that begin so; the demo has no Kafka
    assert [line for line in told.err.splitlines() if not line.startswith("%3|")] == []

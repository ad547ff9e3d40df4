"""Who sends a record hears whether it was stored: in every sample of the documents, and in every example.

A new user's first test passed, and its record was nowhere: `flush` counts what still waits, and what a broker refused waits
no more. Only the delivery report of a record says that.

Rule 1: where a block of a document flushes, each record that it produces has an `on_delivery`. Of the blocks of one title
    the last one counts: a tutorial may begin with the mistake that it mends.
Rule 2: each record of an example has one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.samples import all_blocks

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
FENCED = re.compile(r'^ *```\w*(?: title="(?P<title>[^"]+)")?[^\n]*\n(?P<content>.*?)^ *```$', re.M | re.S)
REFUSES = """
import pytest
from waterclock.testing import Error


@pytest.fixture(autouse=True)
def refusal(kafka_broker):
    with kafka_broker.faults.answer("Produce", Error.TOPIC_AUTHORIZATION_FAILED):
        yield
"""


def last_of_each_title(text: str) -> list[str]:
    """The blocks of a page; of one title the last (rule 1)."""
    found = {block["title"] or str(block.start()): block["content"] for block in FENCED.finditer(text)}
    return list(found.values())


def unheard(block: str) -> list[str]:
    """The records of a block that flushes of which nobody hears."""
    sent = re.findall(r"\bproduce\(.*", block) if ".flush(" in block else []
    return [line for line in sent if "on_delivery" not in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_sample_that_sends_hears_of_a_refusal(page: Path) -> None:
    assert [line for block in last_of_each_title(page.read_text(encoding="utf-8")) for line in unheard(block)] == []


def test_a_sample_that_only_flushes_is_noticed() -> None:
    page = '```python title="a.py"\np.produce("t", "x")\nassert p.flush(10) == 0\n```\n'
    mended = page.replace('"x"', '"x", on_delivery=stored')
    assert [len(unheard(block)) for block in last_of_each_title(page)] == [1]
    assert [unheard(block) for block in last_of_each_title(page + mended)] == [[]]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_an_example_hears_of_each_record(file: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    sent = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "produce"]
    assert [call.lineno for call in sent if "on_delivery" not in {each.arg for each in call.keywords}] == []


def test_a_broker_that_refuses_fails_the_test_of_the_readme(tmp_path: Path) -> None:
    pytest.importorskip("kio")
    pytest.importorskip("confluent_kafka")
    titled = {block.title: block.content for block in all_blocks(PAGES[0].read_text(encoding="utf-8"))}
    patient = titled["test_orders.py"].replace("flush(10)", "flush(100)")  # on a machine that has other work
    (tmp_path / "test_orders.py").write_text(patient, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(REFUSES, encoding="utf-8")
    asked = [sys.executable, "-m", "pytest", "-vv"]
    ran = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed" in ran.stdout
    assert "TOPIC_AUTHORIZATION_FAILED" in ran.stdout


def test_the_main_job_hears_of_a_line_that_is_refused() -> None:
    """Its heartbeats were sent unheard, and of a line that was refused the report said only that it lay nowhere."""
    pytest.importorskip("kio")
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from waterclock.examples.fines.feed import TOPIC, Feed
    from waterclock.examples.fines.replay import Replay
    from waterclock.testing import Broker, Error

    replay = Replay([("A1", "{}")], 0, datetime(2026, 1, 1, tzinfo=UTC))
    with Broker() as broker:
        broker.create_topic(TOPIC)
        refused = broker.faults.answer("Produce", Error.TOPIC_AUTHORIZATION_FAILED)
        with refused, pytest.raises(confluent_kafka.KafkaException, match="authorization failed"):
            Feed(broker.bootstrap, 1, replay, 1_000).start(lambda: None)
        feed = Feed(broker.bootstrap, 1, replay, 1_000)
        feed.start(lambda: None)
        with broker.faults.answer("Produce", Error.TOPIC_AUTHORIZATION_FAILED):
            feed.go_on()
            feed._thread.join()
        with pytest.raises(confluent_kafka.KafkaException, match="authorization failed"):
            feed.stop()


def test_a_lesson_hears_of_a_message_that_is_refused() -> None:
    pytest.importorskip("kio")
    pytest.importorskip("confluent_kafka")
    from waterclock.examples.lessons.keys import filled
    from waterclock.testing import Broker, Error

    with (
        Broker() as broker,
        broker.faults.answer("Produce", Error.TOPIC_AUTHORIZATION_FAILED),
        pytest.raises(RuntimeError, match="was not taken"),
    ):
        filled(broker, "refused", 1)

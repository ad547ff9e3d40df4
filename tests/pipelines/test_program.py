"""`Pipeline(engine="local")`: a pipeline that is written in Python, without Spark (docs/pipeline-api.md)."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.local.running import counts
from tests.samples import blocks
from waterclock import Rules
from waterclock.errors import UsageError, pip_install
from waterclock.local import LocalPipeline
from waterclock.pipelines import Pipeline, folder, topics
from waterclock.sinks import SQLiteSink
from waterclock.testing import Broker

COLUMNS = {"order": "string", "at": "timestamp", "what": "string"}
RULES = Rules(key="order", time="at", type="what").expect(
    "paid", after="created", within="30 minutes", otherwise="unpaid"
)
LINES = (
    '{"order": "A1", "at": "2026-01-01T10:00:00Z", "what": "created"}\n'
    '{"order": "A1", "at": "2026-01-01T10:20:00Z", "what": "paid"}\n'
    '{"order": "B2", "at": "2026-01-01T10:05:00Z", "what": "created"}\n'
)
UNPAID = [("event", "A1"), ("event", "A1"), ("event", "B2"), ("expired", "B2"), ("met", "A1")]
BLOCK = "import sys\nsys.modules.update(dict.fromkeys({}))\n".format
WITHOUT_SPARK = BLOCK(("pyspark", "py4j"))
BARE = BLOCK(("pyarrow", "numpy", "msgpack", "rich", "pyspark"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program names its files without a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first.jsonl").write_text(LINES)
    return tmp_path


def made(sink: Any = None, **more: Any) -> LocalPipeline:
    given = SQLiteSink("orders.db") if sink is None else sink
    pipeline = Pipeline(folder("in", columns=COLUMNS), RULES, given, "checkpoint", engine="local", **more)
    assert isinstance(pipeline, LocalPipeline)
    return pipeline


def results(file: str = "orders.db") -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as db:
        return sorted(db.execute("SELECT kind, key FROM results"))


def test_a_program_runs_it_and_goes_on() -> None:
    with made(close=False) as pipeline:
        summary = pipeline.run()
    assert (summary.events, results()) == (3, [UNPAID[0], UNPAID[2]])
    with made(close=True) as pipeline:
        assert pipeline.run().events == 0
        assert pipeline.statistics().count("events") == 3
    assert results() == UNPAID


def test_run_again_it_takes_what_came_meanwhile(here: Path) -> None:
    with made(close=False) as pipeline:
        pipeline.run()
        (here / "in" / "more.jsonl").write_text('{"order": "B2", "at": "2026-01-01T10:40:00Z", "what": "paid"}\n')
        assert pipeline.run().totals["events"] == 4
        assert pipeline.run().totals["events"] == 4
    assert results() == sorted([*UNPAID])


def test_the_sample_of_the_guide_runs_without_spark_by_one_word_more() -> None:
    """As whoever has no PySpark: the first sample as it stands, with the line that the page names."""
    page = Path(__file__).parents[2] / "docs" / "pipeline-api.md"
    sample = next(content for _, content in blocks(page, "python"))
    word = 'engine="local"'
    assert word in page.read_text()
    there = 'watermark_delay="1 hour"'
    assert there in sample
    program = f"{WITHOUT_SPARK}\n{sample.replace(there, f'{there}, {word}')}\nprint(summary.events)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout) == ("", "3\n")
    assert results() == UNPAID


def test_several_sinks_each_get_all() -> None:
    with made([SQLiteSink("one.db"), SQLiteSink("two.db")]) as pipeline:
        pipeline.run()
    assert results("one.db") == results("two.db") == UNPAID


def test_a_live_run_goes_on_until_it_is_told_to_end(kafka_broker: Broker, kafka_topic: str) -> None:
    sender = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for line in LINES.splitlines():
        sender.produce(kafka_topic, line)
    assert sender.flush(30) == 0
    source = topics(kafka_broker.bootstrap, [kafka_topic], columns=COLUMNS)
    program = Pipeline(source, RULES, SQLiteSink("orders.db"), "checkpoint", engine="local", linger="10 ms")
    with program as pipeline, ThreadPoolExecutor(1) as thread:
        run = thread.submit(pipeline.run, live=True)
        counts(pipeline, "events", 3)
        pipeline.end()
        assert run.result(30).events == 3


LIVE = """
from waterclock import Rules
from waterclock.pipelines import Pipeline, folder
from waterclock.sinks import SQLiteSink
rules = Rules(key="order", time="at")
source = folder("in", columns={"order": "string", "at": "timestamp"})
with Pipeline(source, rules, SQLiteSink("orders.db"), "checkpoint", engine="local", name="endless") as pipeline:
    print(pipeline.run(live=True, report=lambda _: print("took", flush=True)).events)
    again = Pipeline(source, rules, SQLiteSink("orders.db"), "checkpoint", engine="local")
"""


def test_ctrl_c_ends_a_live_run_behind_its_batch_and_the_program_goes_on(here: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LIVE], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "took\n"
        program.send_signal(signal.SIGINT)
        told = program.communicate(timeout=30)[0]
    assert (program.returncode, told) == (0, "3\n")


def test_a_handler_of_the_program_s_own_is_left_alone(here: Path) -> None:
    own = "import signal\nsignal.signal(signal.SIGINT, lambda *_: (print('own'), pipeline.end()))\n"
    with subprocess.Popen([sys.executable, "-c", own + LIVE], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "took\n"
        program.send_signal(signal.SIGINT)
        told = program.communicate(timeout=30)[0]
    assert (program.returncode, told) == (0, "own\n3\n")


class Alerts:
    """Five verbs of one's own."""

    def begin(self) -> None: ...
    def last_applied(self) -> None: ...
    def write(self, batch: Any) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


def _source(of: Any) -> Callable[[], object]:
    return lambda: Pipeline(of, RULES, SQLiteSink("orders.db"), "checkpoint", engine="local")


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "engine": (lambda: made(name="x") and Pipeline(None, RULES, None, "c", engine="flink"), ValueError,  # type: ignore[call-overload]
               r"Pipeline\(engine=\) must be 'spark' or 'local', got 'flink'"),
    "source": (_source(object()), TypeError, "a streaming DataFrame needs engine='spark'"),
    "format": (_source(folder("in", columns=COLUMNS, format="orc")), UsageError, "a source of Spark's readers needs Spark"),
    "changes": (lambda: Pipeline(folder("in", columns=COLUMNS), None, SQLiteSink("o.db"), "c", engine="local"), UsageError,
                "changes of tables needs Spark"),
    "own sink": (lambda: made(Alerts()), UsageError, "an object of yours as a sink needs Spark"),
    "no sink": (lambda: made([]), UsageError, "a pipeline needs a sink"),
    "no verbs": (lambda: made(object()), TypeError, "a sink needs the verbs"),
    "one place": (lambda: made([SQLiteSink("o.db"), SQLiteSink("o.db")]), UsageError, "two of the pipeline's sinks"),
    "remote": (lambda: Pipeline(folder("in", columns=COLUMNS), RULES, SQLiteSink("o.db"), "s3a://b/c", engine="local"),
               UsageError, "a place behind a URI needs Spark"),
    "columns": (_source(folder("in", columns={"order": "string"})), UsageError, r"\[rules\] names the column 'at'"),
    "places": (lambda: Pipeline(folder("in", columns=COLUMNS), RULES, SQLiteSink("o.db"), "in/c", engine="local"),
               UsageError, "lie in each other"),
    "buckets": (lambda: made(buckets=1), ValueError, r"Pipeline\(buckets=\) must be from 2"),
    "delay": (lambda: made(watermark_delay="soon"), ValueError, r"Pipeline\(watermark_delay=\)"),
    "linger": (lambda: made(linger="soon"), ValueError, r"Pipeline\(linger=\)"),
    "name": (lambda: made(name="a b"), UsageError, r"Pipeline\(name=\)"),
}  # fmt: skip


@pytest.mark.parametrize("of", WRONG)
def test_what_does_not_fit_is_refused_before_anything_is_made(of: str, here: Path) -> None:
    make, kind, words = WRONG[of]
    with pytest.raises(kind, match=words):
        make()
    assert not {"checkpoint", "c"} & {path.name for path in here.iterdir()}


def test_without_packages_it_says_what_brings_those_of_this_engine() -> None:
    program = f"{BARE}\nfrom waterclock.pipelines import Pipeline"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"pyarrow is missing: {pip_install('local')}" in done.stderr


@pytest.mark.parametrize("by", ["the option", "the file", "neither"])
def test_a_run_without_packages_says_what_brings_those_of_its_engine(by: str, here: Path) -> None:
    (here / "orders.toml").write_text('[pipeline]\nengine = "local"\n' if by == "the file" else "")
    option = ["--engine", "local"] if by == "the option" else []
    program = f"{BARE}\nfrom waterclock.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "run", "orders.toml", *option]
    first, hint = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    engine = "spark" if by == "neither" else "local"
    assert first.startswith(f"waterclock: pyarrow is missing: {pip_install(engine)}")
    assert first.endswith("and --engine local") == (by == "neither")
    assert hint.endswith(f"waterclock doctor {engine}")

"""A pipeline's file "parsed once, checked whole, before Spark is started": what is taken, what is refused."""

from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.spark.least_pipeline import LEAST, told, write
from waterclock import Rules
from waterclock.errors import UsageError
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.streaming import frames
from waterclock.streaming.files.reading import Layout
from waterclock.streaming.toml.config import Config, Files, load
from waterclock.streaming.toml.steps import Outlet


def test_the_least_file_gets_the_defaults_that_are_promised(folder: Path) -> None:
    assert load(write(folder, LEAST)) == Config(
        name="pipeline",
        checkpoint=folder / "pipeline-checkpoint",
        source=Files("jsonl", folder / "in", 16, {"case": "string", "ts": "timestamp"}),
        watermark_delay_us=0,
        close=True,
        rules=Rules(key="case", time="ts"),
        outlets=(Outlet(SQLiteFile(folder / "out.db", "results")),),
        cores=None,
        spark_conf={},
    )


def test_a_watermark_delay_of_nothing_may_be_a_text(folder: Path) -> None:
    assert load(write(folder, LEAST + '[time]\nwatermark_delay = "0"\n')).watermark_delay_us == 0


def test_everything_that_is_said_is_taken(folder: Path) -> None:
    text = """
        pipeline = { name = "fines", checkpoint = "cp" }
        time = { watermark_delay = "14 days", close = false }
        rules = { key = "n", time = "ts", sequence = "seq", deliver_at.column = "at" }
        sink = { format = "sqlite", path = "/abs/out.db", table = "fines" }
        spark = { cores = 3, conf = { "spark.driver.memory" = "1g", "spark.ui.port" = 4050 } }
        [source]
        format = "parquet"
        path = "in"
        files_per_batch = 2
        columns = { n = "long", ts = "timestamp", seq = "int", at = "timestamp", d = "double", b = "boolean" }
    """
    config = load(write(folder, text))
    assert (config.name, config.checkpoint, config.close) == ("fines", folder / "cp", False)
    assert (config.watermark_delay_us, config.cores) == (1_209_600_000_000, 3)
    assert config.sink == SQLiteFile(Path("/abs/out.db"), "fines")
    assert (config.source.format, config.source.files_per_batch) == ("parquet", 2)
    assert config.spark_conf == {"spark.driver.memory": "1g", "spark.ui.port": "4050"}
    assert config.rules == Rules(key="n", time="ts", sequence="seq").deliver_at("at")


def test_the_shipped_pipeline_loads() -> None:
    shipped = Path(__file__).parents[3] / "examples" / "fines" / "pipeline.toml"
    assert load(shipped).name == "fines"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("[sink]", "[snik]"), "the file: 'snik' is not known here; did you mean 'sink'?"),
        (('[sink]\npath = "out.db"', ""), "the file: 'sink' is missing"),
        (('path = "out.db"', ""), "[sink]: 'path' is missing"),
        (('path = "out.db"', "path = 5"), "[sink]: 'path' must be a text, got 5"),
        (
            ('"out.db"', '"out.db"\nformat = "csv"'),
            "[sink]: 'format' must be one of sqlite, postgres, mysql, duckdb, delta, iceberg, table, kafka, got 'csv'",
        ),
        (('path = "in"', ""), "[source]: 'path' is missing"),
        (
            ('path = "in"', 'path = "in"\nformat = "xml"'),
            "[source]: 'format' must be one of jsonl, parquet, kafka, csv, json, orc, text, delta, table, got 'xml'",
        ),
        (
            ('path = "in"', 'path = "in"\nfiles_per_batch = 0'),
            "[source]: 'files_per_batch' must be at least 1, got 0",
        ),
        (
            ('path = "in"', 'path = "in"\nfiles_per_batch = true'),
            "[source]: 'files_per_batch' must be an integer",
        ),
        (
            ("[source.columns]", "[source.colums]"),
            "[source]: 'colums' is not known here; did you mean 'columns'?",
        ),
        (('ts = "timestamp"', ""), "[rules] names the column 'ts'; [source.columns] has case"),
        (
            ('ts = "timestamp"', 'ts = "date"'),
            "[source.columns]: 'ts' must be one of string, long, int, double",
        ),
        (('ts = "timestamp"', "ts = 5"), "[source.columns]: 'ts' must be one of string, long, int, double"),
        (
            ('ts = "timestamp"', 'ts = "string"'),
            "[source.columns]: 'ts' must be one of timestamp, got 'string'",
        ),
        (
            ('case = "string"', 'case = "double"'),
            "[source.columns]: 'case' must be one of string, long, int, got",
        ),
        (("[rules]", "[[rules]]"), "[rules] must be a table, got [{"),
        (
            ("[sink]", "[time]\nwatermark_delay = -1\n[sink]"),
            "[time]: watermark_delay must not be negative, got -1",
        ),
        (("[sink]", "[time]\nclose = 1\n[sink]"), "[time]: 'close' must be true or false, got 1"),
        (("[sink]", "[spark]\ncores = true\n[sink]"), "[spark]: 'cores' must be an integer, got True"),
        (("[sink]", '[spark]\nconf = "x"\n[sink]'), "[spark]: 'conf' must be a table, got 'x'"),
    ],
)
def test_a_wrong_file_gets_a_sentence_with_the_file_the_place_and_the_value(
    folder: Path, change: tuple[str, str], sentence: str
) -> None:
    assert told(folder, LEAST.replace(*change)).startswith(f"{folder}/pipeline.toml: {sentence}")


@pytest.mark.parametrize(
    "content",
    [b"= 1", b"[source\n", b"\xff\xfe[\x00", b"a = 1\na = 2", b"x = 2020-13-45", b'a = "\x00"', b"\x00"],
)
def test_what_is_not_toml_is_refused_by_the_name_of_the_file(folder: Path, content: bytes) -> None:
    file = folder / "pipeline.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"pipeline\.toml is not a TOML file: "):
        load(file)


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "9" * 5000], ids=["deep", "long number"])
def test_toml_that_python_cannot_hold_is_refused_too(folder: Path, text: str) -> None:
    assert "pipeline.toml" in told(folder, text)


@pytest.mark.parametrize("name", ["gone.toml", "in", "gone/pipeline.toml"])
def test_a_file_that_cannot_be_read_is_refused_with_its_name_and_the_reason(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"^cannot read the pipeline .*{name}: (No such file|Is a directory)"):
        load(folder / name)


def test_a_byte_order_mark_in_front_is_no_matter(folder: Path) -> None:
    assert load(write(folder, "\ufeff" + LEAST)).name == "pipeline"


@pytest.mark.parametrize("table", ["rules", "sink", "source"])
def test_a_missing_table_is_named_as_it_is_written(folder: Path, table: str) -> None:
    text = "".join(f"[{name}]\n" for name in ("rules", "sink", "source") if name != table)
    assert f"the file: '{table}' is missing: write a table [{table}]" in told(folder, text)


def test_a_path_with_nul_cannot_be_read() -> None:
    with pytest.raises(UsageError, match=r"^cannot read the pipeline "):
        load("a\0b.toml")


# "checked whole, before Spark is started"


@pytest.mark.parametrize("cores", [0, -1])
def test_a_number_of_cores_below_one_is_refused(folder: Path, cores: int) -> None:
    assert "'cores'" in told(folder, LEAST + f"[spark]\ncores = {cores}")


def test_spark_settings_written_without_quotes_are_taken_or_refused_but_never_mangled(folder: Path) -> None:
    # In TOML `spark.driver.memory = "1g"` is a table in a table.
    try:
        config = load(write(folder, LEAST + '[spark.conf]\nspark.driver.memory = "1g"'))
    except UsageError:
        return
    assert config.spark_conf == {"spark.driver.memory": "1g"}


def test_a_spark_setting_that_is_a_list_is_refused(folder: Path) -> None:
    assert "spark.x" in told(folder, LEAST + '[spark.conf]\n"spark.x" = [1]')


def test_a_spark_setting_true_is_written_as_spark_writes_it(folder: Path) -> None:
    assert load(write(folder, LEAST + '[spark.conf]\n"spark.x" = true')).spark_conf == {"spark.x": "true"}


@pytest.mark.parametrize("delay", ["9" * 400 + " days", "99999999999999 weeks"], ids=["endless", "beyond 64 bits"])
def test_a_watermark_delay_that_spark_cannot_hold_is_refused(folder: Path, delay: str) -> None:
    assert "watermark_delay" in told(folder, LEAST + f'[time]\nwatermark_delay = "{delay}"')


@pytest.mark.parametrize(
    "rule",
    [
        'order.wait = "3700000 days"',
        'delay = [{ after = "a", by = "3700000 days", emit = "x" }]',
        'expect = [{ type = "b", after = "a", within = "3700000 days", otherwise = "x" }]',
        'quiet = [{ after = "3700000 days", emit = "x" }]',
        'deduplicate.within = "3700000 days"',
    ],
)
def test_a_rule_that_waits_until_no_time_that_can_be_written_is_refused(folder: Path, rule: str) -> None:
    text = LEAST.replace('key = "case"', f'key = "case"\ntype = "case"\n{rule}')
    assert "waits for more than 10,000 years" in told(folder, text)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            'expect = [{ type = "b", after = "a", by = "n", otherwise = "x" }]',
            "'n' must be one of timestamp, got 'long'",
        ),
        ('expect = [{ type = "b", after = "a", by = "due", otherwise = "x" }]', "names the column 'due'"),
        ('order = { tie = ["price"] }', "'price' must be one of string, long, int, boolean, timestamp, got 'double'"),
        ('quiet = [{ after = 1, emit = "x", where = "owed > 1" }]', "[rules] names the column 'owed'"),
        (
            'quiet = [{ after = 1, emit = "x", where = "n > 1 and case > 1" }]',
            "[rules]: the condition 'n > 1 and case > 1' compares the column 'case' (a text) with 1 (a number)",
        ),
    ],
)
def test_a_column_that_a_rule_asks_for_must_be_there_and_fit(folder: Path, rule: str, sentence: str) -> None:
    text = LEAST.replace('key = "case"', f'key = "case"\ntype = "case"\n{rule}')
    assert sentence in told(folder, text.replace("[source.columns]", '[source.columns]\nn = "long"\nprice = "double"'))


def test_one_column_cannot_be_both_key_and_time(folder: Path) -> None:
    assert "'ts'" in told(folder, LEAST.replace('key = "case"', 'key = "ts"'))


@pytest.mark.parametrize("column", ["'Case'", "'a\"b'", '"a\\u0000"', "'a\" TEXT); DROP TABLE x; --'", "''"])
def test_a_column_of_any_name_is_refused_or_has_its_place_in_the_table(folder: Path, column: str) -> None:
    # SQL does not tell case apart, a quote ends a name, NUL ends a statement.
    try:
        config = load(write(folder, LEAST.replace("[source.columns]", f"[source.columns]\n{column} = 'string'")))
    except UsageError:
        return
    source = config.source
    event = Layout(source.format, source.columns, config.rules).schema()
    sink = config.sink.sink()
    with closing(sink), suppress(UsageError):
        sink.open(frames.result_schema(event.field("case").type, event))


def test_a_column_with_the_name_of_one_that_waterclock_adds_is_refused(folder: Path) -> None:
    assert "_row_id" in told(folder, LEAST.replace("[source.columns]", "[source.columns]\n_row_id = 'string'"))


# `--fresh` removes the checkpoint's folder and the sink's file, whatever they are: they must be nothing else.


@pytest.mark.parametrize("checkpoint", [".", "", "in", "..", "/", "in/.."])
def test_a_checkpoint_that_is_a_folder_of_other_things_is_refused(folder: Path, checkpoint: str) -> None:
    assert "checkpoint" in told(folder, f'[pipeline]\ncheckpoint = "{checkpoint}"\n' + LEAST)


@pytest.mark.parametrize("path", ["", ".", "in", "in/out.db", "pipeline.toml", "a\\u0000b"])
def test_a_sink_path_that_is_the_place_of_something_else_is_refused(folder: Path, path: str) -> None:
    assert "path" in told(folder, LEAST.replace("out.db", path))


@pytest.mark.parametrize(
    ("checkpoint", "sink"), [("cp", "cp/out.db"), ("out.db/cp", "out.db"), ("same", "same"), ("in/cp", "out.db")]
)
def test_places_that_lie_in_each_other_are_refused(folder: Path, checkpoint: str, sink: str) -> None:
    text = f'[pipeline]\ncheckpoint = "{checkpoint}"\n' + LEAST.replace("out.db", sink)
    assert "lie in each other" in told(folder, text)


def test_a_place_is_known_through_a_link_too(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "in")
    assert "lie in each other" in told(folder, LEAST.replace("out.db", "link/out.db"))


@pytest.mark.parametrize("place", ["in", "out.db", "c"])
def test_a_path_whose_name_is_too_long_is_told(folder: Path, place: str) -> None:
    text = f'[pipeline]\ncheckpoint = "c"\n{LEAST}'.replace(f'"{place}"', f'"{"x" * 300}"')
    assert "xxx leads nowhere: " in told(folder, text)


def test_a_checkpoint_above_the_source_is_refused(folder: Path) -> None:
    text = '[pipeline]\ncheckpoint = "data"\n' + LEAST.replace('"in"', '"data/in"')
    assert "lie in each other" in told(folder, text)


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a\\u0000b"])
def test_a_name_is_checked_before_it_becomes_a_path(folder: Path, name: str) -> None:
    assert "name" in told(folder, f'[pipeline]\nname = "{name}"\n' + LEAST)

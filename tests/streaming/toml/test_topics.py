"""The [source] table of topics: what is taken, what is refused, and that secrets stay where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from waterclock.errors import UsageError
from waterclock.streaming.toml import sources
from waterclock.streaming.toml.config import Config, load
from waterclock.streaming.toml.topics import Topics

LEAST = """
[source]
format = "kafka"
servers = "localhost:9092"
topics = ["orders"]
[source.columns]
case = "string"
ts = "timestamp"
[rules]
key = "case"
time = "ts"
[sink]
path = "out.db"
"""


def loaded(folder: Path, text: str) -> Config:
    file = folder / "pipeline.toml"
    file.write_text(text, encoding="utf-8")
    return load(file)


def topics(folder: Path, *changes: tuple[str, str]) -> Topics:
    text = LEAST
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    source = loaded(folder, text).source
    assert isinstance(source, Topics)
    return source


def told(folder: Path, *changes: tuple[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        topics(folder, *changes)
    return str(caught.value)


def more(line: str) -> tuple[str, str]:
    """The change that adds a line to [source]."""
    return "[source.columns]", f"{line}\n[source.columns]"


def test_the_least_table_gets_the_defaults_that_are_promised(tmp_path: Path) -> None:
    assert topics(tmp_path) == Topics(
        servers="localhost:9092",
        topics=("orders",),
        columns={"case": "string", "ts": "timestamp"},
        record={},
        starting="earliest",
        ending="latest",
        per_batch=100_000,
        way="python",
        on_loss="fail",
        client={},
        connector={},
    )


def test_several_servers_and_topics_are_taken(tmp_path: Path) -> None:
    found = topics(tmp_path, ('"localhost:9092"', '["a:1", "b:2"]'), ('["orders"]', '["orders", "returns.v2"]'))
    assert (found.servers, found.topics) == ("a:1,b:2", ("orders", "returns.v2"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ('"earliest"', "earliest"),
        ('"latest"', "latest"),
        ('"2026-01-01T00:00:00Z"', 1_767_225_600_000),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ('"2026-01-01T00:00:00.000001Z"', 1_767_225_600_001),  # not before that moment
        ("{ orders = { 0 = 5, 12 = 0 } }", {"orders": {0: 5, 12: 0}}),
    ],
)
def test_a_stream_starts_and_ends_where_it_is_told(tmp_path: Path, given: str, meant: object) -> None:
    assert topics(tmp_path, more(f"starting = {given}")).starting == meant
    assert topics(tmp_path, more(f"ending = {given}")).ending == meant


def test_parts_of_a_record_become_columns_that_the_rules_may_name(tmp_path: Path) -> None:
    record = '[source.record]\nkey = "who"\ntimestamp = "written"\noffset = "place"\n[rules]'
    found = topics(tmp_path, ("[rules]", record), ('key = "case"', 'key = "who"'), ('time = "ts"', 'time = "written"'))
    assert found.record == {"key": "who", "timestamp": "written", "offset": "place"}
    assert found.all_columns() == {
        "case": "string",
        "ts": "timestamp",
        "who": "string",
        "written": "timestamp",
        "place": "long",
    }


def test_settings_of_the_client_come_with_dots_in_quotes_and_without(tmp_path: Path) -> None:
    client = (
        '[source.client]\n"sasl.username" = "ann"\nsecurity.protocol = "SASL_SSL"\n"socket.timeout.ms" = 500\n[rules]'
    )
    assert topics(tmp_path, ("[rules]", client)).client == {
        "sasl.username": "ann",
        "security.protocol": "SASL_SSL",
        "socket.timeout.ms": "500",
    }


def test_a_secret_comes_from_the_environment_and_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret")
    lines = [
        "[source.client]",
        '"sasl.password" = { env = "ORDERS_PASSWORD" }',
        'sasl.username = { env = "ORDERS_PASSWORD" }',
    ]
    client = "\n".join([*lines, "[rules]"])
    found = topics(tmp_path, ("[rules]", client))
    assert found.client == {"sasl.password": "s3cret", "sasl.username": "s3cret"}
    assert "s3cret" not in repr(found)


def test_a_secret_that_the_environment_lacks_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORDERS_PASSWORD", raising=False)
    client = '[source.client]\n"sasl.password" = { env = "ORDERS_PASSWORD" }\n[rules]'
    assert "'sasl.password' is to come from the environment, and the variable 'ORDERS_PASSWORD' is not set" in told(
        tmp_path, ("[rules]", client)
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('servers = "localhost:9092"', ""), "[source]: 'servers' must be addresses"),
        (('"localhost:9092"', '""'), "'servers' must be addresses such as \"localhost:9092\", got ''"),
        (('"localhost:9092"', '["a:1", 5]'), "'servers' must be addresses"),
        (('"localhost:9092"', '"a:1 b:2"'), "'servers' must be addresses"),
        (('topics = ["orders"]', ""), "[source]: 'topics' is missing"),
        (('["orders"]', '"orders"'), "[source]: 'topics' must be a list, got 'orders'"),
        (('["orders"]', "[]"), "'topics' must name at least one topic, and each once, got []"),
        (('["orders"]', '["a", "a"]'), "'topics' must name at least one topic, and each once"),
        (('["orders"]', '["../etc"]'), "'topics' must be names of topics"),
        (('["orders"]', '[".."]'), "'topics' must be names of topics"),
        (more('path = "in"'), "[source]: 'path' is not known here"),
        (more('vaule = "json"'), "'vaule' is not known here; did you mean 'value'?"),
        (more('value = "avro"'), "[source]: 'value' must be one of json, maxwell, debezium, got 'avro'"),
        (more("per_batch = 0"), "[source]: 'per_batch' must be at least 1, got 0"),
        (more('way = "jvm"'), "[source]: 'way' must be one of python, connector, got 'jvm'"),
        (more('on_loss = "ignore"'), "[source]: 'on_loss' must be one of fail, go on, got 'ignore'"),
        (more('starting = "early"'), '\'starting\' must be "earliest", "latest", a time'),
        (more("starting = 5"), '\'starting\' must be "earliest", "latest", a time'),
        (more("starting = 2026-01-01"), '\'starting\' must be "earliest", "latest", a time'),
        (more("starting = { other = { 0 = 5 } }"), "'starting' names the topic 'other'; 'topics' has orders"),
        (more("starting = { orders = { 0 = -1 } }"), "'starting' must give offsets from 0 by partition"),
        (more("starting = { orders = { x = 1 } }"), "'starting' must give offsets from 0 by partition"),
        (more("starting = { orders = 5 }"), "'starting' must give offsets from 0 by partition"),
        (("[rules]", '[source.record]\nvalue = "v"\n[rules]'), "must be one of key, headers, timestamp, topic"),
        (("[rules]", '[source.record]\nkey = "case"\n[rules]'), "names the column 'case', which is there already"),
        (("[rules]", '[source.record]\nkey = "k"\ntopic = "k"\n[rules]'), "which is there already"),
        (("[rules]", "[source.record]\nkey = 5\n[rules]"), "[source.record]: 'key' must name a column, got 5"),
        (("[rules]", '[source.record]\nkey = "Ts"\n[rules]'), "differ by case only"),
        (("[rules]", '[source.client]\n"isolation.level" = "read_uncommitted"\n[rules]'), "only committed records"),
        (("[rules]", '[source.client]\nbootstrap.servers = "x"\n[rules]'), "servers in [source] says it"),
        (("[rules]", '[source.client]\n"a" = [1]\n[rules]'), "[source.client]: 'a' must be a text, a number"),
        (("[rules]", '[source.connector]\n"minPartitions" = 4\n[rules]'), 'set way = "connector" in [source]'),
    ],
)
def test_what_is_wrong_is_told_with_the_place(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    assert sentence in told(tmp_path, change)


def test_sparks_connector_cannot_end_before_the_end(tmp_path: Path) -> None:
    way = more('way = "connector"\nending = { orders = { 0 = 5 } }')
    assert "leave out 'ending', or take way = \"python\"" in told(tmp_path, way)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("startingTimestamp", "starting in [source] says it"),
        ("minOffsetsPerTrigger", "a run would end before all is read"),
        ("failondataloss", "on_loss in [source] says it"),
        ("kafka.isolation.level", "only committed records are read"),
        ("subscribePattern", "topics in [source] says it"),
    ],
)
def test_what_keeps_exactly_once_is_no_option_of_sparks_connector(tmp_path: Path, name: str, why: str) -> None:
    # a time in "startingTimestamp" won over `starting`, and a run with "minOffsetsPerTrigger" left the rest unread
    options = f'[source.connector]\n"{name}" = "5"\n[rules]'
    sentence = told(tmp_path, more('way = "connector"'), ("[rules]", options))
    assert f"[source.connector]: {name!r} cannot be set: {why}" in sentence


def test_a_setting_that_sparks_connector_does_not_know_is_told_with_the_way_to_give_it(tmp_path: Path) -> None:
    client = '[source.client]\n"ssl.key.location" = "key.pem"\n[rules]'
    sentence = told(tmp_path, more('way = "connector"'), ("[rules]", client))
    assert "'ssl.key.location' is a setting of librdkafka" in sentence
    assert "[source.connector]" in sentence


def test_a_type_that_debezium_has_not_is_told_at_the_start(tmp_path: Path) -> None:
    text = '[source]\nformat = "kafka"\nservers = "h:1"\ntopics = ["t"]\nvalue = "debezium"\n[sink]\npath = "out.db"\n'
    assert loaded(tmp_path, f'{text}[source.types]\nprice = "Decimal:2"\n').source.types == {"price": "Decimal:2"}
    with pytest.raises(UsageError, match=r"\[source.types\]: the type of 'price' must be Decimal:2 .*, got 'decimal'"):
        loaded(tmp_path, f'{text}[source.types]\nprice = "decimal"\n')


@pytest.mark.parametrize("step", ['query = "SELECT * FROM source"', 'transform = "steps:late_ones"'])
def test_a_step_stands_in_front_of_the_rules_and_not_before_changes_of_tables(tmp_path: Path, step: str) -> None:
    found = topics(tmp_path, ('topics = ["orders"]', f'topics = ["orders"]\n{step}'))
    assert found.step is not None
    assert found.step.folder == tmp_path
    assert found.all_columns() is None  # what comes out of it, Spark knows
    assert found.read_columns() == {"case": "string", "ts": "timestamp"}
    changes = f'[source]\nformat = "kafka"\nservers = "h:1"\ntopics = ["t"]\nvalue = "maxwell"\n{step}\n'
    name = step.partition(" ")[0]
    with pytest.raises(
        UsageError, match=rf"\[source\]: '{name}' is for rows, and value = 'maxwell' has none: leave it out"
    ):
        loaded(tmp_path, f'{changes}[sink]\npath = "out.db"\n')


def test_offsets_of_a_program_name_partitions_by_numbers_too() -> None:
    # 'int' object has no attribute 'isdecimal'
    made = sources.topics("h:1", ["orders"], columns={"case": "string"}, starting={"orders": {0: 5}})
    assert made.starting == {"orders": {0: 5}}

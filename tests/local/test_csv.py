"""Files of CSV without Spark: what their options mean, what is refused, and that they are read once more as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.running import run_locally
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.errors import StateMismatch, UsageError
from waterclock.local.command import check
from waterclock.local.snapshots import NAME

OPTIONS = '[source.options]\nheader = true\nsep = ";"\ntimestampFormat = "dd.MM.yyyy HH:mm:ss.SSSSSS"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The orders as CSV; one line of them is none."""
    rows = orders(40)
    made = make_pipeline(tmp_path, rows, 1)
    (tmp_path / "in" / "000.jsonl").unlink()
    size = -(-len(rows) // 3)
    for number in range(3):
        told = (
            {**row, "at": f"{row['at']:%d.%m.%Y %H:%M:%S.%f}"}.values()
            for row in rows[number * size : (number + 1) * size]
        )
        lines = [";".join(rows[0]), *(";".join(map(str, values)) for values in told)]
        (tmp_path / "in" / f"{number}.csv").write_text("\n".join([*lines, "x", ""]))
    text = made.read_text().replace('path = "in"\n', 'path = "in"\nformat = "csv"\n')
    made.write_text(text.replace("[source.columns]", f"{OPTIONS}[source.columns]"))
    return made


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_csv_gives_what_json_lines_give_and_is_read_once_more(file: Path, tmp_path: Path) -> None:
    assert check(str(file)).faults == []
    summary = run_locally(file)
    run_locally(other := make_pipeline(tmp_path / "json", orders(40), 1))
    columns = "kind, key, rule, due, source_id, result_id, event_at, event_n"
    before = table(file.parent)
    assert sorted(table(file.parent, columns)) == sorted(table(other.parent, columns))
    assert summary.totals["dead_letters"] == 3
    (file.parent / "checkpoint" / NAME).unlink()
    run_locally(file)
    assert table(file.parent) == before


def test_other_options_are_refused_while_the_checkpoint_lives(file: Path) -> None:
    run_locally(file)
    change(file, 'sep = ";"', 'sep = ","')
    with pytest.raises(StateMismatch, match="changed since"):
        run_locally(file)


def test_columns_in_another_order_are_refused_while_the_checkpoint_lives(file: Path) -> None:
    change(file, 'path = "out.db"', 'path = "out.db"\ncolumns = ["key", "kind"]')
    run_locally(file)
    change(file, "[source.columns]\n", "[source.columns]\nid = 'string'\n")
    change(file, '\nid = "string"', "")
    with pytest.raises(StateMismatch, match=r"changed since .* was made \(columns\)"):
        run_locally(file)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('sep = ";"', 'sep = "::"', r"sep = '::' needs Spark"),
        ('sep = ";"', 'quote = "\'"', r"quote = .* needs Spark"),
        ('sep = ";"', 'nullValue = "NA"', r"nullValue = 'NA' needs Spark"),
        ('sep = ";"', 'Encoding = "ISO-8859-1"', r"Encoding = 'ISO-8859-1' needs Spark"),
        ('sep = ";"', 'timeZone = "Europe/Berlin"', r"timeZone = .* needs Spark"),
        ("header = true", "header = 7", r"header = '7' needs Spark"),
        ("dd.MM.yyyy HH", "d.M.yyyy HH", r"timestampFormat = .* needs Spark"),
        ('n = "long"', 'n = "decimal(3,1)"', r"'n' = 'decimal\(3,1\)' needs Spark"),
        ('at = "timestamp"', 'at = "string"', r"must be|needs|one of"),
        ("[source.columns]", "[source.columns]\n_row_id = 'string'", "waterclock's own"),
    ],
)
def test_what_only_spark_knows_of_csv_is_refused_by_its_name(file: Path, old: str, new: str, words: str) -> None:
    change(file, old, new)
    with pytest.raises(UsageError, match=words):
        run_locally(file)


def test_columns_that_are_inferred_need_spark(file: Path) -> None:
    text = file.read_text()
    begin, end = text.index("[source.columns]"), text.index("[time]")
    file.write_text(text[:begin] + text[end:])
    with pytest.raises(UsageError, match=r"inferred need Spark: declare them.*engine = \"spark\""):
        run_locally(file)


def test_options_that_mean_what_is_so_already_are_taken(file: Path) -> None:
    change(
        file,
        'sep = ";"',
        'delimiter = ";"\nencoding = "utf-8"\ntimeZone = "UTC"\nmode = "PERMISSIVE"\nenforceSchema = true',
    )
    assert run_locally(file).totals["dead_letters"] == 3


def test_letters_with_which_compressed_files_begin_are_letters(file: Path) -> None:
    # a key that began with BZh made its whole file one dead letter, whose remedy was to decompress it
    change(file, "header = true\n", "")
    for each in (file.parent / "in").iterdir():
        each.write_text("".join(f"BZh9{line}\n" for line in each.read_text().splitlines()[1:-1]))
    summary = run_locally(file)
    assert (summary.totals["events"], summary.totals["dead_letters"]) == (len(orders(40)), 0)

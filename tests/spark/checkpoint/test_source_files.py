"""Spark's log of the files that it took, as it leaves it: what it names, and whether a file is still as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from waterclock.spark.checkpoint.source_files import TakenFile, files_of_entry, is_unchanged, taken_files
from waterclock.streaming.files.folder import written_in


def write_entry(log: Path, name: str, *files: tuple[str, int], written_ms: int = 7) -> None:
    """An entry as Spark writes it: (path behind the folder, number of the entry) of each file."""
    log.mkdir(parents=True, exist_ok=True)
    told = [{"path": f"file:///in/{path}", "timestamp": written_ms, "batchId": number} for path, number in files]
    lines = [json.dumps(each, separators=(",", ":")) for each in told]
    (log / name).write_text("\n".join(["v1", *lines]))
    (log / f".{name}.crc").write_bytes(b"crc")


def test_a_log_tells_the_files_of_all_its_entries_each_once(tmp_path: Path) -> None:
    assert list(taken_files(tmp_path / "none")) == []
    write_entry(tmp_path, "8", ("a", 8))
    write_entry(tmp_path, "9.compact", ("first", 0), ("a", 8), ("b%20c%25.jsonl", 9))
    write_entry(tmp_path, "10", ("é", 10))
    assert [(file.name, file.entry) for file in taken_files(tmp_path)] == [
        ("first", 0),
        ("a", 8),
        ("b c%.jsonl", 9),
        ("é", 10),
    ]


def test_the_files_of_one_entry_are_found_alone_or_among_all(tmp_path: Path) -> None:
    write_entry(tmp_path, "8", ("a", 8))
    write_entry(tmp_path, "19.compact", ("first", 9), ("b", 19), ("c", 19))
    assert [[file.name for file in files_of_entry(tmp_path, n)] for n in (8, 19)] == [["a"], ["b", "c"]]


def test_a_file_is_unchanged_while_its_name_and_its_time_are_those_that_were_taken(tmp_path: Path) -> None:
    write_entry(tmp_path / "log", "0", ("a", 0))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    os.utime(tmp_path / "in" / "a", ns=(0, 7_999_999))
    taken = {file.name: file for file in taken_files(tmp_path / "log")}
    assert unchanged(tmp_path / "in", taken) == [True]
    (tmp_path / "in" / "a").rename(tmp_path / "in" / "b")
    assert unchanged(tmp_path / "in", taken) == [False]
    (tmp_path / "in" / "b").rename(tmp_path / "in" / "a")
    (tmp_path / "in" / "a").touch()
    assert unchanged(tmp_path / "in", taken) == [False]


def unchanged(folder: Path, taken: Mapping[str, TakenFile]) -> list[bool]:
    return [is_unchanged(name, written, taken) for name, written, _ in written_in(folder)]

"""Whose doing it is that a file cannot be read: the file's own, a dead letter, or the place's, an error."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.spark.least_pipeline import LEAST
from tests.streaming.files.ways import GOOD, LAYOUT, PARQUET, one_dead_letter
from waterclock.errors import EnvironmentMissing
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.files import FileStream, reader
from waterclock.streaming import frames
from waterclock.streaming.files import reading
from waterclock.streaming.toml.config import load

AS_NOBODY = """
import os, sys
from tests.streaming.files.ways import LAYOUT
from waterclock.errors import EnvironmentMissing
from waterclock.streaming.files.reading import read_file
os.setuid(65534)
try:
    print([block.dead.column("reason").to_pylist() for block in read_file(sys.argv[1], LAYOUT)])
except EnvironmentMissing as error:
    print("stopped:", error)
"""


def read(path: str) -> list[reading.Block]:
    return list(reading.read_file(path, LAYOUT))


@pytest.mark.parametrize(
    "path", ["s3a://bucket/a.jsonl", "hdfs://127.0.0.1:1/a.jsonl", "nowhere://x/y", "abfss://c@h/x"]
)
def test_a_place_that_no_worker_can_open_is_an_error_and_never_a_dead_letter(path: str) -> None:
    # pyarrow knows no s3a://, and hdfs:// not without a library: every file became a dead letter, and the run was green
    with pytest.raises(
        EnvironmentMissing, match=rf"the source's file {path} cannot be read on {socket.gethostname()}: "
    ):
        read(path)


@pytest.mark.parametrize(
    "number",
    [
        errno.EIO,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EMFILE,
        errno.ENOMEM,
        errno.ENOTDIR,
    ],
    ids=errno.errorcode.get,
)
@pytest.mark.parametrize("when", ["opened", "read"])
def test_a_disk_or_a_mount_that_fails_is_an_error(folder: Path, number: int, when: str) -> None:
    (folder / "a.jsonl").write_bytes(GOOD)
    failing = OSError(number, os.strerror(number))
    where = "open_file" if when == "opened" else "_is_packed"
    with patch.object(reading, where, side_effect=failing), pytest.raises(EnvironmentMissing, match="the same command"):
        read((folder / "a.jsonl").as_uri())


@pytest.mark.parametrize(
    "error", [MemoryError(), pa.ArrowMemoryError("malloc of size 5 failed"), pa.lib.ArrowCancelled("x")]
)
def test_no_memory_or_a_signal_is_an_error(folder: Path, error: Exception) -> None:
    (folder / "a.jsonl").write_bytes(GOOD)
    with patch.object(reading, "_fast", side_effect=error), pytest.raises(EnvironmentMissing):
        read((folder / "a.jsonl").as_uri())


def test_what_is_no_file_to_be_read_is_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(tmp_path / "socket"))
        for path in (tmp_path, tmp_path / "loop", tmp_path / "socket", tmp_path / ("x" * 300)):
            assert one_dead_letter(path.as_uri()).startswith("cannot be read: ")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert one_dead_letter((tmp_path / "broken.parquet").as_uri(), PARQUET).startswith("cannot be read: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("mode", "told"), [(0o755, '[["cannot be read: '), (0o700, "stopped: ")])
def test_a_file_that_is_forbidden_is_its_own_and_a_folder_that_is_forbidden_is_the_places(mode: int, told: str) -> None:
    with closing(_Elsewhere()) as folder:
        (folder.path / "a.jsonl").write_bytes(GOOD)
        (folder.path / "a.jsonl").chmod(0o600)
        folder.path.chmod(mode)
        command = [sys.executable, "-c", AS_NOBODY, (folder.path / "a.jsonl").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(told), done.stderr


class _Elsewhere:
    """A folder that another user comes to: pytest's own are closed to them."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp())

    def close(self) -> None:
        for file in self.path.iterdir():
            file.unlink()
        self.path.rmdir()


# A file that is not there


def made_of(path: Path) -> list[pa.Table]:
    named = pa.RecordBatch.from_pydict({"path": [f"file:{path}"], "written": [0], "beat": [False]})
    packed = [row["frame"] for made in reader(LAYOUT)(iter([named])) for row in made.to_pylist()]
    return [frames.from_bytes(frame) for frame in packed if frame is not None]


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStream:
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    monkeypatch.setattr(Checkpoint, "files_of", lambda *_: ["a.jsonl"])
    assert config.rules is not None
    return FileStream(config.source, config.rules, 0, Checkpoint(config.checkpoint))  # type: ignore[arg-type]


def test_a_file_that_is_gone_for_the_driver_too_is_a_dead_letter(stream: FileStream, tmp_path: Path) -> None:
    taken = made_of(tmp_path / "in" / "a.jsonl")
    (letter,) = stream.vanished(0, taken)
    assert frames.counters_of(letter) == {"files": 1, "dead_letters": 1}


def test_a_file_that_only_a_worker_does_not_see_is_an_error(stream: FileStream, tmp_path: Path) -> None:
    # a machine of the cluster on which the folder was not mounted: a dead letter for each of its files, and a green run
    taken = made_of(tmp_path / "in" / "a.jsonl")
    (tmp_path / "in" / "a.jsonl").write_bytes(GOOD)
    with pytest.raises(
        EnvironmentMissing, match=rf"a\.jsonl is in .* worker on {socket.gethostname()} does not see it"
    ):
        stream.vanished(0, taken)


def test_a_file_that_sparks_own_look_at_it_does_not_find_is_told_in_a_sentence(
    stream: FileStream, tmp_path: Path
) -> None:
    # as Spark's executors do, before a worker is given the name
    story = f"Caused by: java.io.FileNotFoundException: File file:{tmp_path}/in/a.jsonl does not exist\n\tat x"
    assert "was taken away" in str(stream.explain(story))
    (tmp_path / "in" / "a.jsonl").write_bytes(GOOD)
    assert "a machine of the cluster does not see it: mount the folder there" in str(stream.explain(story))
    assert stream.explain("something else") is None


@pytest.mark.parametrize(
    "said",
    [
        "File file:/in/a%20 b.jsonl does not exist",
        "No such file or directory: s3a://bucket/in/a%20 b.jsonl",
        "File does not exist: /in/a%20 b.jsonl",
    ],
)
def test_each_stores_words_for_a_file_that_is_gone_are_known(stream: FileStream, said: str) -> None:
    told = stream.explain(f"x\nCaused by: java.io.FileNotFoundException: {said}\n\tat org.apache")
    assert str(told).startswith("the file a%20 b.jsonl was taken away")


def test_a_file_that_is_not_there_has_no_rows_and_no_letter(tmp_path: Path) -> None:
    (frame,) = made_of(tmp_path / "no" / "a.jsonl")
    assert (frame.num_rows, frames.unseen_of(frame)) == (0, ("a.jsonl", socket.gethostname()))
    assert frames.file_of(frame) is None

"""Each tutorial runs from its first block to its last in an empty folder, and prints what it shows."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.samples import all_blocks, free_port, run_page

CLONE = "needs your clone of waterclock"
TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
CONSOLE = """
```python title="app.py"
import time
try:
    print("ready", 4711)
    time.sleep(600)
except KeyboardInterrupt:
    print("closed")
```
```console title="Terminal 1, leave it running"
$ mkdir inside; cd inside
$ python ../app.py
ready ...
```
```console title="Terminal 2"
$ export WHO=ada
$ echo $WHO; ls
ada
app.py
inside
$ python app.py
ready ...
^C
closed
$ python -c 'import sys; sys.exit("no such thing")'
no such thing
$ echo $?
1
$ echo one \\
  two
one two
```
```console title="Terminal 1"
^C
closed
$ echo on
on
```
```python
from pathlib import Path
assert Path("inside").is_dir()
```
```console title="Terminal 2: it fails"
$ cat missing
cat: missing: ...
```
```bash
rmdir inside
test ! -e inside
```
"""


def page(folder: Path, text: str) -> Path:
    file = folder / "page.md"
    file.write_text(text)
    return file


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Where a page is tried; what stands beside it is not seen."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_a_page_that_keeps_its_word_is_walked_to_its_end(tmp_path: Path, empty: Path) -> None:
    assert run_page(page(tmp_path, CONSOLE), empty) == 7


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        ("ada\napp", "bob\napp", "is shown to print"),
        ("one two", "one two three", "is shown to print"),
        ("^C\nclosed\n$ python -c", "^C\n$ python -c", "is shown to print"),
        ("^C\nclosed\n$ echo on", "^C\nstill there\n$ echo on", r"\^C is shown to print"),
        ("$ echo $?\n1\n", "", "ended with 1"),
        ('print("ready"', 'raise ValueError("ready"', "is shown to print"),
        ("is_dir()", "is_file()", None),
        ("$ cat missing\ncat: missing: ...\n", "$ true\n", "did not fail"),
        ("test ! -e", "test -e", "ended with 1"),
    ],
)
def test_a_page_that_does_not_is_noticed(
    there: str, instead: str, told: str | None, tmp_path: Path, empty: Path
) -> None:
    assert there in CONSOLE
    with pytest.raises(AssertionError, match=told):
        run_page(page(tmp_path, CONSOLE.replace(there, instead)), empty)


def test_what_goes_on_ends_with_the_page(tmp_path: Path, empty: Path) -> None:
    text = """```console
$ sh -c 'echo $$ >pid; echo it runs; exec sleep 600' &
it runs
$ echo meanwhile
meanwhile
```
"""
    assert run_page(page(tmp_path, text), empty) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int((empty / "pid").read_text()), 0)


def test_what_a_page_needs_is_left_out_where_it_is_not(tmp_path: Path, empty: Path) -> None:
    needy = page(tmp_path, '```console title="needs a server"\n$ false\n```\n')
    assert run_page(needy, empty) == 0
    with pytest.raises(AssertionError, match="ended with 1"):
        run_page(needy, empty, has=["a server"])


def walk(name: str, folder: Path, **own: Any) -> None:
    """All blocks of a tutorial but the one that installs: extras and what they bring are tried by `make test-wheel`."""
    page = TUTORIALS / name
    titles = [block.title for block in all_blocks(page.read_text(encoding="utf-8"))]
    assert [title for title in titles if title.startswith("needs ")] == [CLONE]
    assert run_page(page, folder, **own) == len(titles) - 1


def test_each_tutorial_is_walked() -> None:
    walked = re.findall(r'walk\("([\w-]+\.md)"', Path(__file__).read_text(encoding="utf-8"))
    assert sorted(walked) == sorted(page.name for page in TUTORIALS.glob("*.md"))


def test_a_timer(empty: Path) -> None:
    walk("timer.md", empty)


@pytest.mark.long(seconds=7)
def test_a_test_with_a_kafka_in_it(empty: Path) -> None:
    pytest.importorskip("confluent_kafka")
    walk("kafka-test.md", empty)


@pytest.mark.long(seconds=27)
def test_a_delayed_message(empty: Path) -> None:
    pytest.importorskip("confluent_kafka")
    here = f"127.0.0.1:{free_port()}"
    put = {f"relay {verb} ": f"relay {verb} --bootstrap {here} " for verb in ("send", "read", "show", "cancel")}
    put |= {"127.0.0.1:9092": here, "relay --embedded": f"relay --port {here.rpartition(':')[2]} --embedded"}
    walk("delayed-message.md", empty, put=put)


@pytest.mark.spark
@pytest.mark.long(seconds=35)
def test_a_pipeline_from_a_csv_file(empty: Path) -> None:
    pytest.importorskip("pyspark")
    walk("pipeline.md", empty)


@pytest.mark.spark
@pytest.mark.mariadb
@pytest.mark.long(seconds=30)
def test_a_tables_changes(empty: Path) -> None:
    pytest.importorskip("pymysqlreplication")
    if shutil.which("mariadb-install-db") is None:
        pytest.skip("no MariaDB on this machine (Debian: apt install mariadb-server)")
    kafka = str(free_port())
    put = {"3307": str(free_port()), "9092": kafka, "broker --data": f"broker --port {kafka} --data"}
    if os.geteuid() == 0:  # a MariaDB has to be told so
        put |= {'"$PWD/db"': '"$PWD/db" --user=root'}
    walk("table-changes.md", empty, put=put)

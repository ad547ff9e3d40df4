"""The pages of docs/how-to: every sample runs from top to bottom, in a folder of its own, and prints what the page shows.

Rule 1: a port that a page names is replaced by a free one. A command that names none gets it as an option.
Rule 2: what a page needs beside waterclock stands in NEEDS; without it the page is skipped, by name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests import samples
from tests.samples import all_blocks, free_port, run_page

FOLDER: Final = Path(__file__).parents[1] / "docs" / "how-to"
PAGES: Final = sorted(FOLDER.glob("*.md"))
PAGES_OF: Final = {page.stem: page for page in PAGES}
# page -> the packages, or the program, without which it cannot run here
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "fastapi": ("fastapi", "uvicorn", "curl"),
    "faststream": ("faststream",),
    "django": ("django",),
    "sqlalchemy": ("sqlalchemy",),
    "run-as-a-service": ("curl",),
}
SERVERS: Final = (
    "binlog-to-warehouse",
    "changes-in-python",
    "on-a-cluster",
)  # pages that have a test of their own, with what they need
RUN_ELSEWHERE: Final = {"MariaDB", "a cluster"}  # by tests below
NEVER_RUN: Final[Mapping[str, str]] = {
    "root and systemd": "tests/test_packaging.py looks at the units, and runs their commands",
    "Docker": "likewise",
    "a stream of yours": "tests/spark/test_samples.py runs these lines as they stand in docs/pipeline-api.md",
    "a checkpoint of yours": "tests/spark/rescaling runs this command",
}
LONG: Final[Mapping[str, int]] = {"your-own-dataframe": 25}  # page -> its seconds on a quiet machine
# of a command whose port is Kafka's own where nothing is said: what says another one
PORT: Final = {
    "waterclock relay --embedded out/relay": " --port {port}",
    "waterclock broker --data out/broker": " --port {port}",
    **{
        f"waterclock relay {verb}": " --bootstrap 127.0.0.1:{port}" for verb in ("send", "read", "ls", "cancel", "show")
    },
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark on a cluster of this machine says nothing before its end: 19 s in peace, 132 s beside sixteen others."""
    monkeypatch.setattr(samples, "PATIENCE_S", 400)


def on_free_ports(text: str, **known: int) -> dict[str, str]:
    """What is to be put in place of a page's ports. Rule 1. `known` are those of servers that run: `p3306=33061`."""
    ports = {port: known.get(f"p{port}") or free_port() for port in {*re.findall(r"127\.0\.0\.1:(\d+)", text)}}
    put = {f"127.0.0.1:{shown}": f"127.0.0.1:{port}" for shown, port in ports.items()}
    for option in ("--port", "--metrics"):
        put |= {f"{option} {shown}": f"{option} {port}" for shown, port in ports.items() if f"{option} {shown}" in text}
    if "9092" in ports:
        more = {command: option.format(port=ports["9092"]) for command, option in PORT.items()}
        put |= {f"{command} ": f"{command}{option} " for command, option in more.items() if f"{command} " in text}
        put |= {f"{command}\n": f"{command}{option}\n" for command, option in more.items() if f"{command}\n" in text}
    return put


def parameters() -> list[object]:
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.long(seconds=LONG[page.stem])] if page.stem in LONG else [])
        for page in PAGES
        if page.stem not in ("index", *SERVERS)
    ]


@pytest.mark.parametrize("page", parameters())
def test_a_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    for need in NEEDS.get(page.stem, ()):
        if not (find_spec(need) or shutil.which(need)):
            pytest.skip(f"{need} is not installed")
    folder = tmp_path / page.stem
    folder.mkdir()
    assert run_page(page, folder, put=on_free_ports(page.read_text(encoding="utf-8"))) > 0


@pytest.mark.long(seconds=40)
@pytest.mark.mariadb
def test_a_binlog_comes_into_tables(tmp_path: Path) -> None:
    from tests.cdc.mariadb import running_server

    page, folder = PAGES_OF["binlog-to-warehouse"], tmp_path / "page"
    folder.mkdir()
    with running_server(tmp_path / "mariadb") as server:
        put = on_free_ports(page.read_text(encoding="utf-8"), p3306=server.port)
        assert run_page(page, folder, put=put, has=["MariaDB"]) == 8


@pytest.mark.mariadb
def test_a_program_reads_changes(tmp_path: Path) -> None:
    from tests.cdc.mariadb import running_server

    page, folder = PAGES_OF["changes-in-python"], tmp_path / "page"
    folder.mkdir()
    with running_server(tmp_path / "mariadb") as server:
        put = on_free_ports(page.read_text(encoding="utf-8"), p3306=server.port)
        assert run_page(page, folder, put=put, has=["MariaDB"]) == 8


@pytest.mark.mariadb
def test_a_row_and_its_task_are_one_transaction(tmp_path: Path) -> None:
    from tests.cdc.mariadb import running_server

    page, folder = PAGES_OF["from-polled-table"], tmp_path / "page"
    folder.mkdir()
    with running_server(tmp_path / "mariadb") as server:
        put = on_free_ports(page.read_text(encoding="utf-8"), p3306=server.port)
        put["port=3306"] = f"port={server.port}"
        assert run_page(page, folder, put=put, has=["MariaDB"]) == 7


def test_a_block_that_no_test_runs_says_so_and_is_known() -> None:
    titles = {block.title for page in PAGES for block in all_blocks(page.read_text(encoding="utf-8"))}
    assert {title.removeprefix("needs ") for title in titles if title.startswith("needs ")} == {
        *RUN_ELSEWHERE,
        *NEVER_RUN,
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert len(prose.split()) <= 600


@pytest.mark.long(seconds=60)
@pytest.mark.spark
def test_a_pipeline_runs_on_a_cluster(tmp_path: Path) -> None:
    from tests.spark.standalone import cluster

    page, folder = PAGES_OF["on-a-cluster"], tmp_path / "page"
    folder.mkdir()
    with cluster(tmp_path / "cluster") as running:
        put = {"spark://127.0.0.1:7077": running.url}
        assert run_page(page, folder, put=put, has=["a cluster"]) == 3


def test_every_page_stands_in_the_list_of_pages() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [page.name for page in PAGES if page.stem != "index"]

"""Who has a port that somebody wants: the process is named, and what is not known is not said."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.samples import free_port
from waterclock.ports import holder

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="a system that does not say who listens")
LISTENS = """
import socket
with socket.create_server((HOST, 0)) as server:
    print(server.getsockname()[1], flush=True)
    input()
"""


def test_another_process_is_named_by_its_first_words_and_without_its_options(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(LISTENS.replace("HOST", "'127.0.0.1'"))
    asked = [sys.executable, str(script), "--password", "secret"]
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = holder("127.0.0.1", int(process.stdout.readline()))
        process.kill()
    assert told == f"process {process.pid} ({Path(sys.executable).name} server.py)"


@pytest.mark.parametrize(
    ("listens", "wanted", "is_in_the_way"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("::1", "::1", True),
        ("127.0.0.2", "127.0.0.1", False),
    ],
)
def test_who_listens_at_another_address_has_nothing_to_do_with_it(
    listens: str, wanted: str, is_in_the_way: bool
) -> None:
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    try:
        server = socket.create_server((listens, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {listens}")
    with closing(server):
        assert holder(wanted, server.getsockname()[1]).startswith(f"process {os.getpid()} (") == is_in_the_way


def test_nobody_is_named_where_nobody_listens() -> None:
    assert holder("127.0.0.1", free_port()) == ""

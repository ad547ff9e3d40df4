"""The commands of a pair as a user types them. Kills under load: tests/simulation, tests/broker/consistency."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.consistency.node import Node, free_port
from tests.broker.replication.pairs import pair, until
from waterclock.broker import Broker

BROKER = [sys.executable, "-m", "waterclock.cli", "broker"]


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([*BROKER, *words], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_promote_says_what_it_did_and_what_it_cannot(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        code, _, said = run("promote", "--at", both.one.bootstrap)
        assert (code, "is the leader already" in said) == (2, True)
        assert run("promote", "--at", both.two.bootstrap) == (0, f"the broker at {both.two.bootstrap} leads\n", "")
        assert both.two.leads
    code, _, said = run("promote", "--at", f"127.0.0.1:{free_port()}")
    assert (code, "Is the follower running there?" in said) == (1, True)
    code, _, said = run("promote", "--at", "nowhere")
    assert (code, "takes HOST:PORT" in said) == (2, True)


def test_promote_unclean_makes_even_an_empty_follower_lead(tmp_path: Path) -> None:
    with Broker(tmp_path, follow=f"127.0.0.1:{free_port()}") as broker:
        code, _, said = run("promote", "--at", broker.bootstrap)
        assert (code, "has copied nothing yet" in said) == (1, True)
        assert run("promote", "--at", broker.bootstrap, "--unclean")[0] == 0
        assert broker.leads


def test_a_process_that_cannot_follow_ends_with_a_sentence(tmp_path: Path) -> None:
    with Broker(tmp_path / "mine") as broker:
        broker.create_topic("mine")
    with Broker(tmp_path / "leader") as leader:
        code, said, why = run("--port", "0", "--data", str(tmp_path / "mine"), "--follow", leader.bootstrap)
    assert (code, said.startswith("waterclock broker follower on")) == (1, True)
    assert "is of another cluster" in why.splitlines()[-1]


def test_a_follower_process_says_that_it_is_one(tmp_path: Path) -> None:
    node = Node(tmp_path / "one", {})
    node.start(follow=f"127.0.0.1:{free_port()}")
    assert node.process is not None
    until(lambda: "cannot be reached" in "".join(node.said))
    os.kill(node.process.pid, 15)
    assert node.process.wait(20) == 0
    node.end()

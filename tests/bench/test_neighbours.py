"""`waterclock bench neighbours`: it measures, and its table says what was measured. Figures are not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from waterclock import cli
from waterclock.bench.neighbours import campaign, good, requests
from waterclock.bench.neighbours.attacks import ATTACKS, GROUPS, begun
from waterclock.broker import Broker


def test_the_well_behaved_client_is_answered() -> None:
    with Broker() as broker:
        broker.create_topic(good.TOPIC, 4)
        found = good.run(broker.bootstrap, 0.2, 50, False)
    assert found["requests"] == 10
    assert 0 < found["p50"] <= found["p99"] <= found["max"]


def test_what_attackers_send_is_what_the_protocol_says() -> None:
    with Broker() as broker, requests.connected(broker.bootstrap) as sock:
        requests.ask(sock, requests.create_topics(["good", "bombed"], 2, **{"cleanup.policy": "compact"}))
        bomb = requests.batch(requests.record(b"k", b"v") * 1000, 1000, requests.GZIP)
        for request in (
            requests.metadata(), requests.metadata("good"), requests.list_groups(), requests.commit("g", "good"),
            requests.produce("bombed", 0, bomb),
        ):  # fmt: skip
            assert len(requests.ask(sock, request)) > 8
        with RawClient(broker.bootstrap) as client:
            assert client.end("bombed") == 1000
        assert broker.call(lambda: [group.id for group in broker.inside.groups]) == ["g"]
    assert begun(100, 10)[:4] == b"\0\0\0\x64"
    assert GROUPS == 50_000


def test_the_table_says_who_was_not_answered() -> None:
    quiet = {"requests": 100, "p50": 1.0, "p99": 2.0, "max": 3.0}
    none = {"requests": 0, "p50": None, "p99": None, "max": None}
    rows = {"a": {"what": "an attack", "quiet": quiet, "beside": {**quiet, "p99": 10.0}}}
    rows["b"] = {"what": "another", "quiet": quiet, "beside": none}
    text = campaign.table({"rate": 50, "seconds": 2.0, "load": 1.0, "rows": rows})
    assert [line.split()[-3:] for line in text.splitlines()[-2:]] == [["5.0", "x", "100%"], ["-", "-", "0%"]]


@pytest.mark.long(seconds=90)
def test_a_broker_is_measured_beside_every_attack(tmp_path: Path) -> None:
    assert cli.main(["bench", "neighbours", "--seconds", "1", "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "neighbours.json").read_text())["figures"]
    assert figures["rows"].keys() == ATTACKS.keys()
    assert all(row["quiet"]["requests"] for row in figures["rows"].values())

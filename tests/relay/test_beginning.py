"""A relay that is started while Kafka is away: it waits, says so, and ends with the remedy when that lasts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.test_rights import CAROL, SETTINGS
from waterclock import cli
from waterclock.broker import Access
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.settings import base_settings
from waterclock.relay import process
from waterclock.relay.process import begun
from waterclock.relay.relay import Relay, RelayOptions
from waterclock.testing import Broker


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One of the test's own; nothing pauses."""
    monkeypatch.setattr(process, "ATTEMPT_S", 0.0)
    monkeypatch.setattr(process, "AGAIN_AFTER_S", 0.01)
    with Broker(tmp_path / "broker", settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def test_a_relay_that_is_started_while_kafka_is_away_waits_and_says_so(broker: Broker, tmp_path: Path) -> None:
    """It ended after half a minute without a word of what to mend."""
    settings, heard = base_settings(broker.bootstrap, {}), list[str]()
    options = RelayOptions(broker.bootstrap, "delays", tmp_path / "files", "group", 1)
    broker.cut_power()

    def said(error: WaterclockError) -> None:
        if not heard:
            broker.start()
        heard.append(str(error))

    relay = begun(settings, "delays", lambda: Relay(options), said, SystemClock())
    relay.close()
    assert set(heard) == {f"Kafka at {broker.bootstrap} is away: it is waited for, for 300 seconds at most."}


def test_so_does_one_that_loses_kafka_while_it_begins(broker: Broker) -> None:
    heard, ends = list[WaterclockError](), [EnvironmentMissing("gone"), None]

    def begin() -> str:
        if (error := ends.pop(0)) is not None:
            raise error
        return "begun"

    settings = base_settings(broker.bootstrap, {})
    assert begun(settings, "delays", begin, heard.append, ManualClock()) == "begun"
    assert len(heard) == 1


@pytest.mark.long(seconds=5)
def test_when_that_lasts_it_ends_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", 0.0)
    assert cli.main(["relay", "--bootstrap", "127.0.0.1:1", "--folder", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("waterclock: no broker answers at 127.0.0.1:1 (")
    assert line.endswith("): start it, or mend --bootstrap. It was waited for, for 0 seconds.")


def test_a_refusal_ends_it_at_once() -> None:
    with (
        Broker(access=Access(users=("admin:secret", "carol:another")), settings=SETTINGS) as broker,
        pytest.raises(UsageError, match=r"refuses the client: .* Look at --kafka-config"),
    ):
        begun({**base_settings(broker.bootstrap, {}), **CAROL}, "delays", print, pytest.fail, SystemClock())

"""Leaving the group: a consumer of Kafka's that does not close keeps no relay from ending."""

from __future__ import annotations

import logging
import threading

import pytest

from waterclock.relay import group


class Stuck:
    """A consumer that has nothing, and whose `close` ends when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def assignment(self) -> list[object]:
        return []

    def unsubscribe(self) -> None:
        """It does."""

    def poll(self, wait_s: float) -> None:
        """Nothing comes."""

    def close(self) -> None:
        self.let_go.wait(30)


def test_a_consumer_that_does_not_close_is_left_behind_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "CLOSING_S", 0.05)
    stuck = Stuck()
    with caplog.at_level(logging.WARNING):
        group.leave(stuck)
    assert "the consumer does not close" in caplog.text
    stuck.let_go.set()

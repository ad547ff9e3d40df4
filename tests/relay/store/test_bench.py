"""The bench of the store at a tiny size: right answers; no figure is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from waterclock.bench.relay.store import burst, measure


def test_what_is_measured_is_right(tmp_path: Path) -> None:
    assert measure(tmp_path, 20_000).keys() > {"append_per_s", "settle_50k_ms", "find_per_s", "load_s", "resident_mb"}
    assert burst(tmp_path / "burst", 10_000)["loaded"] == 10_000

"""What nearly every test of the purgatory begins with: one of each kind, under a clock turned by hand."""

from __future__ import annotations

import pytest

from tests.purgatory.purgatories import KINDS, Bench


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(KINDS[request.param])

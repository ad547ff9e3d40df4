"""waterclock's pipelines on topics, by both ways, against either broker: the contract of tests/topic_contract.py.

Both ways run in one session, which has the jars of Spark's own connector.
"""

from __future__ import annotations

import pytest

from tests.topic_contract import *  # noqa: F403

pytestmark = [pytest.mark.servers, pytest.mark.spark]


@pytest.fixture(params=["python", "connector"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)

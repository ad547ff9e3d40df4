"""What the tests of Kafka's ground floor need: confluent-kafka, and our broker to talk to."""

import pytest

pytest.importorskip("confluent_kafka", reason="pip install 'waterclock[kafka]'")
pytest.importorskip("kio", reason="pip install 'waterclock[broker]'")

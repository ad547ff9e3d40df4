"""What the rules count, after every event: rules and streams at random, and the oracle counts too."""

import pytest
from hypothesis import given

from tests.rules.oracle import FOREVER, Oracle, Spec
from tests.rules.test_properties import Stream, build, few, keyed, many, specs, streams
from waterclock.rules.engine import CLOSED, NO_WATERMARK, Engine


def counts_as_the_oracle(spec: Spec, stream: Stream) -> None:
    engine, oracle = Engine(build(spec)), Oracle(spec)
    for row in stream.rows:
        engine.step([keyed(spec, row, row.id)], NO_WATERMARK)
        engine.step((), row.time - stream.watermark_delay)
        oracle.arrive(row)
        oracle.advance(row.time - stream.watermark_delay)
        assert oracle.counters() == engine.counters.to_dict()
    engine.step((), CLOSED)
    oracle.advance(FOREVER)
    assert oracle.counters() == engine.counters.to_dict()


@few
@given(specs(), streams(late=True))
def test_the_counters_say_what_the_oracle_counts(spec: Spec, stream: Stream) -> None:
    counts_as_the_oracle(spec, stream)


@few
@given(specs(sequence=True, wait=3, within=None), streams(late=True))
def test_the_counters_of_streams_with_gaps_say_what_the_oracle_counts(spec: Spec, stream: Stream) -> None:
    counts_as_the_oracle(spec, stream)


@pytest.mark.long(seconds=30)
@many
@given(specs(), streams(late=True, max_size=40))
def test_the_counters_of_long_streams_say_what_the_oracle_counts(spec: Spec, stream: Stream) -> None:
    counts_as_the_oracle(spec, stream)

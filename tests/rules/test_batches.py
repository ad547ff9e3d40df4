"""Batches of disordered, late streams against the oracle: all of a batch is judged by the watermark of those before it."""

from collections import Counter

from hypothesis import given

from tests.rules.oracle import FOREVER, Oracle, Row, Spec
from tests.rules.test_properties import (
    Stream,
    batches,
    build,
    cuts,
    few,
    keyed,
    run_in_batches,
    settled,
    specs,
    streams,
)
from waterclock.rules.engine import Engine


@few
@given(specs(), streams(late=True), cuts)
def test_batches_with_late_events_give_what_the_oracle_says(spec: Spec, stream: Stream, some: set[int]) -> None:
    oracle = Oracle(spec)
    for watermark, rows in batches(stream, some):
        oracle.advance(watermark)
        for row in rows:
            oracle.arrive(row)
    oracle.advance(FOREVER)
    found, _ = run_in_batches(spec, stream, some)
    assert settled(found) == Counter((out.kind, out.key, out.rule, out.due) for out in oracle.out)


def test_an_id_behind_its_horizon_is_forgotten_within_a_batch_too() -> None:
    # a late event that came twice was late once and a duplicate then, or late twice, by how the input was cut
    spec = Spec(within=4, wait=0)
    row, late = Row("a", 100, "e0"), Row("a", 10, "e1")
    whole, cut = Engine(build(spec)), Engine(build(spec))
    for engine in (whole, cut):
        engine.step([keyed(spec, row, None)], 0)
    together = whole.step([keyed(spec, late, None)] * 2, 100)
    apart = [out for watermark in (100, 101) for out in cut.step([keyed(spec, late, None)], watermark)]
    assert [out.kind for out in together] == ["late", "late"]
    assert Counter(out.kind for out in apart) == {"late": 2, "event": 1}

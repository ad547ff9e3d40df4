"""A row has room for 65,535 topics. That so many were ever named ended a relay, at each start anew: a number that nothing
pending has is given to another topic."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import NOON, US, Date, append, checkpoint, settle
from waterclock.errors import UsageError
from waterclock.relay.store import PartitionStore, folder, rows
from waterclock.relay.store.folder import Salvage


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, folder):
        monkeypatch.setattr(module, "MOST_TARGETS", 3)


def topics(store: PartitionStore) -> dict[int, str]:
    return {row["origin"].item(): store.targets[row["target"]] for some in store.pending_with(None, 10) for row in some}


def test_a_number_that_nothing_pending_has_is_given_anew(tmp_path: Path) -> None:
    with PartitionStore(tmp_path, US, Date()) as store:
        for origin, topic in enumerate("abc"):
            append(store, [(origin, NOON)], target=topic, id=topic.encode())
        checkpoint(store, 3)
        settle(store, 1)
        append(store, [(3, NOON)], target="d", id=b"d")
        assert topics(store) == {0: "a", 2: "c", 3: "d"}
        with pytest.raises(
            UsageError, match="messages for 3 topics are pending, and it cannot take one for b: use more partitions"
        ):
            append(store, [(4, NOON)], target="b")
        settle(store, 0, 2)
        append(store, [(4, NOON)], target="e")
        (left,) = {"a", "c"}.intersection(store.targets)
        append(store, [(5, NOON)], target=left, id=b"left")  # it had a number still, which is not free any more
        with pytest.raises(UsageError):
            append(store, [(6, NOON)], target="f")
        expected = {3: "d", 4: "e", 5: left}
        assert topics(store) == expected
        assert {name: [one.target for one in store.find(name.encode())] for name in ("b", "d", "left")} == {
            "b": ["(not known)"], "d": ["d"], "left": [left],
        }  # fmt: skip
        (span,) = store.spans()
        assert span.pending == {"d": 1, "e": 1, left: 1}
        checkpoint(store, 6)
    with PartitionStore(tmp_path, US, Date()) as store:
        assert topics(store) == expected
        assert [one.target for one in store.find(b"b")] == ["(not known)"]


def test_of_what_lies_behind_the_last_checkpoint_nobody_says_a_topic_of_before(tmp_path: Path) -> None:
    with PartitionStore(tmp_path, US, Date()) as store:
        for origin, topic in enumerate("abc"):
            append(store, [(origin, NOON)], target=topic)
        checkpoint(store, 3)
        settle(store, 1)
        append(store, [(3, NOON)], target="d")
    found = {one.origin: one.topic for one in Salvage(tmp_path / US.folder_name()).messages()}
    assert found == {0: "a", 1: "b", 2: "c", 3: None}

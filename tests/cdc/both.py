"""What compiled code reads, held against the plain readers on the same log of a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from waterclock.cdc.mysql import tables
from waterclock.cdc.postgres import rows
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.written import Written


def through_both(patches: pytest.MonkeyPatch, read: Callable[[], list[MaxwellMessage]]) -> list[MaxwellMessage]:
    """The changes that `read` reads from the log, which it can do twice: both ways they have the same bytes."""
    found = read()
    with patches.context() as plainly:
        plainly.setattr(tables, "ImagePlan", None)
        plainly.setattr(rows, "_tuples", None)
        plain = read()
    assert not any(isinstance(change.data, Written) for change in plain)
    assert [_said(change) for change in found] == [_said(change) for change in plain]
    return found


def _said(change: MaxwellMessage) -> tuple[object, ...]:
    return change.as_key(), change.as_json(), dict(change.data), change.old and dict(change.old), change.types

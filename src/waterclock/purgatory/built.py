"""The teller that was compiled, or the plain one; as lock.py says it of the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Teller"]

if TYPE_CHECKING:
    from waterclock.purgatory.telling import Teller
else:
    try:
        from waterclock.purgatory._telling import Teller
    except ImportError:
        from waterclock.purgatory.telling import Teller

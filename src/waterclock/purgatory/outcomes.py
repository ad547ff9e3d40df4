"""The states of a delayed operation: it waits, and is over in one of three ways.

state      leaves it by                                            then
waiting    try_complete says True, force_complete()                over, "completed"
           the timeout                                             over, "expired"
           cancel_for_key(), close(), a cancelled wait()           over, "cancelled"
over       -                                                       in no watch list, without callables
"""

from __future__ import annotations

from typing import Literal

Outcome = Literal["completed", "expired", "cancelled"]
COMPLETED: Outcome = "completed"
EXPIRED: Outcome = "expired"
CANCELLED: Outcome = "cancelled"

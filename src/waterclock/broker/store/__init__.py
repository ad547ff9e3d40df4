"""What must outlive the broker's process beside its logs: the store, its file, and what lies beside them."""

from waterclock.broker.store.store import Entry, Forget, Store, Then

__all__ = ["Entry", "Forget", "Store", "Then"]

"""SQLite as a place for results."""

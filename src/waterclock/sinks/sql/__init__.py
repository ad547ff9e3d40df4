"""SQLite and PostgreSQL as places for results."""

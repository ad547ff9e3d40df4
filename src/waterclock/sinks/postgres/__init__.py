"""PostgreSQL as a place for results."""

"""DuckDB as a place for results."""

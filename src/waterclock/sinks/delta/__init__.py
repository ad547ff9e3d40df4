"""Delta Lake as a place for results."""

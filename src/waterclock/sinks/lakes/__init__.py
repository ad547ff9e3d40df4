"""Delta Lake and Iceberg as places for results."""

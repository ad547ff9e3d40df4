"""Apache Iceberg as a place for results."""

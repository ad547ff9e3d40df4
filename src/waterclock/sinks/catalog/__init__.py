"""A table of a catalog that Spark has: its record alone. The sink is Spark's (spark/tables/sink.py)."""

"""A streaming DataFrame as the source of a pipeline.

stream.py   the stream: rows of the DataFrame, heartbeats beside them
rows.py     rows into packed rows and dead letters, in a worker
reader.py   the same of one of Spark's own readers, with columns that may be inferred
"""

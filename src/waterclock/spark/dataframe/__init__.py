"""A streaming DataFrame as the source of a pipeline.

stream.py   the stream: rows of the DataFrame, or of one of Spark's own readers; heartbeats beside them
lines.py    lines that a reader of Spark's would cut or mix up
rows.py     rows into packed rows and dead letters, in a worker
"""

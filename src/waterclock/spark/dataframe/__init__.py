"""A streaming DataFrame as the source of a pipeline.

stream.py   the stream: rows of the DataFrame, heartbeats beside them
rows.py     rows into packed rows and dead letters, in a worker
plans.py    what in a DataFrame's plan would not be the same when a batch is run again, or holds state of its own
"""

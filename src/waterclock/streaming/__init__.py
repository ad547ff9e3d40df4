"""What a pipeline is made of without Spark: rows read from files and topics, buckets of keys with their state, its file.

frames.py      Arrow tables as bytes, with what they say beside their rows
layout.py      what a read row must be, its id, dead letters, the time that closes
buckets.py     keys into buckets
files/         files into rows
topics/        records of Kafka's topics into rows and changes
state/         the state of one bucket, from batch to batch; compiled/ is its engine in C++
toml/          a pipeline's file, checked whole before anything starts
places/        where files lie: a path, or a URI that Spark's file systems know
checkpoint.py  what a checkpoint is, whichever engine keeps it; how it is removed
owner.py       one run at a time on a checkpoint
statistics.py  what a pipeline reports about itself: while it runs, after each batch, at the end

Rule 1: nothing here imports PySpark. What needs a session stands in `waterclock.spark`, which is above.
"""

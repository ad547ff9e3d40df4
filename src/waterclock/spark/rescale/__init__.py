"""A checkpoint's state: what it holds, and how it is carried over into another number of buckets.

parts.py      the state of one bucket taken apart by keys, and put together again
reading.py    stored state, by Spark's own reader
writing.py    parts become the state of a new checkpoint, by a query of Spark's
offsets.py    where the new one's sources go on, in Spark's words
carry.py      all of it, by numbered steps, with the sink
command.py    `waterclock state`
"""

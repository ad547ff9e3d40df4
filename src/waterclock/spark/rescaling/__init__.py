"""A checkpoint's state: what it holds, and how it is carried over into another number of buckets, or from another engine.

parts.py      the state of one bucket taken apart by keys, and put together again
stored.py     stored state, read by Spark's own reader, and written by a query of Spark's
carry.py      all of it, by numbered steps, with the sink
arrival.py    the same steps for a state that was made without Spark
"""

"""The state of one bucket of keys, from batch to batch.

bucket.py      a bucket at work: state in, rules, state out
states.py      the states of keys, packed by columns
carried.py     values that results carry of an event
rows.py        the rows that keys hold, by number
pages.py       keys that rest, a page at a time
chunks.py      deadlines that rest, by slot
blobs.py       where pages and chunks lie until they are needed
watermarks.py  how far each partition of a topic has come
"""

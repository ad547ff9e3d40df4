"""The state of one bucket of keys, from batch to batch.

bucket.py      a bucket at work: state in, rules, state out; how far each partition of a topic has come
plain.py       the engine over columns that is not compiled; compiled/ is the one that is
rows.py        the rows that keys hold, by number, and values that results carry
states.py      what rests, packed: states of keys, segments of a page, deadlines by slot
held.py        whose events wait for their order, and for what
pages.py       keys that rest, a page at a time
blobs.py       where pages and chunks lie until they are needed
"""

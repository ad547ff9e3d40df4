"""A pipeline's file, parsed once and checked whole before Spark starts.

config.py  the file as a whole: `Config`
topics.py  [source] for topics of Kafka
sink.py    [sink]
readers.py  [source] for Spark's own readers
steps.py   a step of the user's own: query, transform
table.py   a table of it, each value looked at as it is read, and paths: the one way for all of them
"""

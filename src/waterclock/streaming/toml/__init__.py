"""A pipeline's file, parsed once and checked whole before Spark starts.

config.py  the file as a whole: `Config`
topics.py  [source] for topics of Kafka
sink.py    [sink]
paths.py   paths that a file names must not lie in each other
table.py   a table of it, each value looked at as it is read: the one way for all of them
"""

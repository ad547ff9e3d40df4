"""A pipeline's file, parsed once and checked whole before Spark starts.

config.py  the file as a whole: `Config`
topics.py  [source] for topics of Kafka
sink.py    [sink]
paths.py   paths that a file names must not lie in each other
values.py  values of one key: numbers, durations, one of some words
"""

"""A folder of files as the source of a pipeline.

source.py   the stream: Spark lists the files, workers read them
reading.py  a file into blocks of rows and dead letters
jsonl.py    JSON lines, read fast where the slow way would read the same
parquet.py  Parquet
"""

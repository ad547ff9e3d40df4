"""Files into rows.

reading.py  a file into blocks of rows and dead letters; Parquet
jsonl.py    JSON lines, read fast if the slow way would read the same
"""

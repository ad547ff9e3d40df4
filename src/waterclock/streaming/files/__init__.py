"""Files into rows.

reading.py  a file into blocks of rows and dead letters
jsonl.py    JSON lines, read fast where the slow way would read the same
parquet.py  Parquet
"""

"""What a running pipeline reports about itself, beside the record of streaming/statistics.py.

listening.py   what Spark reports of a query
behind.py      how much of the source no batch has taken
"""

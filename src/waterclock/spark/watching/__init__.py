"""What a running pipeline reports about itself.

statistics.py  the frozen record, gathered batch by batch
listening.py   what Spark reports of a query
behind.py      how much of the source no batch has taken
prometheus.py  the record as metrics
"""

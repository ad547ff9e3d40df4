"""What a running pipeline reports about itself.

statistics.py  the frozen record, gathered batch by batch, and how it is shown to Prometheus
listening.py   what Spark reports of a query
behind.py      how much of the source no batch has taken
"""

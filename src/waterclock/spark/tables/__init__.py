"""Tables of the catalogs that Spark's session has, as a sink whose rows Spark's own writers write.

sink.py       the sink: three tables, and the order of their commits
lakes.py      how rows of a batch come into one table once: Delta Lake's way and Iceberg's
catalog.py    Spark's catalogs, by SQL and names; what Java threw, in a line
"""

"""Topics of Kafka as the source of a pipeline, in two ways behind the seam of spark/source.py.

packing.py     rows into packed rows, with the time of their partition beside them
stepping.py    the same behind a step of the user's own
datasource.py  the way "python": a data source in Python over confluent-kafka
connector.py   the way "connector": Spark's own, from its jars
stream.py      the stream that a pipeline runs on
"""

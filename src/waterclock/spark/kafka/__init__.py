"""Topics of Kafka as the source of a pipeline, in two ways behind the seam of spark/source.py.

offsets.py     where each partition is read to, and which task reads what
client.py      a pipeline's client: its settings, and the offsets that its file means
fetcher.py     the records of ranges of partitions, over confluent-kafka
records.py     records into rows, dead letters and heartbeats
packing.py     rows into packed rows, with the time of their partition beside them
datasource.py  the way "python": a data source in Python over confluent-kafka
connector.py   the way "connector": Spark's own, from its jars
stream.py      the stream that a pipeline runs on
"""

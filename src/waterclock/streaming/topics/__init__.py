"""Topics of Kafka into rows.

offsets.py  where each partition is read to, and which task reads what
client.py   a pipeline's client: its settings, and the offsets that its file means
fetcher.py  the records of ranges of partitions, over confluent-kafka
records.py  records into rows, dead letters and heartbeats
changes.py  records into changes of tables
clocks.py   up to where the time of each partition has come
"""

"""Topics of Kafka into rows.

offsets.py  where each partition is read to, and which task reads what
fetcher.py  a pipeline's client, and the records of ranges of partitions, over confluent-kafka
tail.py     the end of topics, by a consumer that stays there
records.py  records into rows, changes of tables, dead letters and heartbeats
"""

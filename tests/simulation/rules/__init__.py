"""Rules with a sink under the simulation: one pipeline, by one or two machines, and what is promised of it (docs/rules.md,
docs/topics.md, sinks/base.py).

What runs is the product's, unchanged: the pipeline's start and batches, the planner and the readers of topics, packing, the
operator and its state, the checkpoint with its lease and its notes, sinks on a topic and on SQLite. Modelled is what Spark
is (spark.py): the loop of micro-batches, its notes, the shuffle, versions of the state; and a store of objects (places.py),
on which the checkpoint lies.
"""

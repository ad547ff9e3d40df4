"""Rules with a sink under the simulation: one pipeline, by one or two machines, and what `docs/rules.md`, `docs/topics.md`
and the sinks promise of it.

What runs is the product's, unchanged: the pipeline's start and its batches, the planner and the readers of topics, the
packing, the operator and its state, the checkpoint with its lease and its notes, sinks on a topic and on SQLite. Modelled
is what Spark is (spark.py): the loop of micro-batches, its notes, the shuffle, versions of the state; and a store of
objects (places.py), on which the checkpoint lies.
"""

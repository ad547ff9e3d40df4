"""A batch on its way from the operator's result frames to the sinks.

steps.py       a step of the user's own: SQL, a function; plans.py: what its plan must not hold
results.py     what comes out of `rules.on_spark()` as the source of a pipeline
task_files.py  what executors do where they write the results
batches.py     the frames of a batch as what a sink is given
outlets.py     what each sink takes of it
"""

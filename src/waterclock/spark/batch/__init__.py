"""A batch on its way from the operator's result frames to the sinks.

steps.py    a step of the user's own: SQL, a function; and what its plan must not hold
batches.py  the frames of a batch as what a sink is given; what executors do if they write the results
outlets.py  what each sink takes of it
"""

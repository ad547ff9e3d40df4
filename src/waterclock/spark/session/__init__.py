"""Spark's session: how it is started, and what it runs on.

session.py     starting it, on this machine or on a cluster
runtimes.py    which Java and which Python it runs on
worker.py      what a Python that Spark starts does first
cluster.py     what a cluster must have before a pipeline is sent there
starts.py      a query's start and end: Ctrl-C while Java works, another try, the sentence for a failure
"""

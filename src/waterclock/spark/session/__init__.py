"""Spark's session: how it is started, and what it runs on.

session.py     starting it, on this machine or on a cluster
java.py        which Java it runs on
cluster.py     what a cluster must have before a pipeline is sent there
interrupts.py  Ctrl-C while Java works
"""

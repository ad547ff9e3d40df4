"""A second broker that copies everything and counts as in sync: what acks=all waits for, and who takes over.

replicas.py and journal.py are the leader's side, replica.py, fetcher.py and link.py the follower's.
"""

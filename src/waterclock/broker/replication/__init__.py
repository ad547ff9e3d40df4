"""A second broker that copies everything and counts as in sync: what acks=all waits for, and who takes over.

replicas.py, journal.py and lease.py are the leader's side, replica.py and fetcher.py the follower's; link.py
is the connection between the two.
"""

"""What lies in a Spark checkpoint folder: Spark's files that are read, and ours beside them.

folder.py  `Checkpoint`: every file in it, and what is refused once it is closed, moved or damaged
taken.py   Spark's log of the files that it took
unplanned.py  what a kill leaves between that log and a batch's offsets
owner.py   one run at a time on a checkpoint: a lock
lease.py   the same where there are no locks, and a number for each owner
"""

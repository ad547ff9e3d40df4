"""What lies in a Spark checkpoint folder: Spark's files that are read, and ours beside them.

folder.py        `Checkpoint`: every file in it, and what is refused once it is closed, moved or damaged
source_files.py  the files of a source's folder, and Spark's log of those that it took
reads.py         that log and Spark's offsets, put right after a kill or a take-over
state_files.py   whether the state was carried over, and lies where the driver sees it
"""

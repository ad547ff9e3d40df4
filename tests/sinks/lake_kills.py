"""Where a child that writes into a lake kills itself."""

# where the catalog is to be given the commit of that number: its files are written
ICEBERG_KILL = """
import os, signal
from pyiceberg.catalog.sql import SqlCatalog
commit, steps = SqlCatalog.commit_table, iter(range(9))
def dying(*arguments):
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*arguments)
SqlCatalog.commit_table = dying
apply_once(sink, batch(1))
"""

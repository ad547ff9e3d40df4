"""Files that executors write and the driver commits."""

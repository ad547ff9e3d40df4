"""Numbers of a running command over HTTP: for Prometheus, and as JSON. What the numbers are, each room knows itself.

record.py    how a field of a record is shown; Prometheus's page and the JSON that are made of it
server.py    a small server of routes
option.py    `--metrics PORT`, of every long-running command
"""

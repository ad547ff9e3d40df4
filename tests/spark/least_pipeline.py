"""The least pipeline that is one: for tests which change one thing in it."""

LEAST = """
[source]
path = "in"
[source.columns]
case = "string"
ts = "timestamp"
[rules]
key = "case"
time = "ts"
[sink]
path = "out.db"
"""

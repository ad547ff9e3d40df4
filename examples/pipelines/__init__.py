"""Two pipelines over logs that lie as their makers left them. The data is made up, and small.

deliveries/   gzipped CSV in another encoding, with German times, joined with a table of shops: a pipeline's file
sensors/      nested JSON without a sequence number, flattened with SQL: written in Python
"""

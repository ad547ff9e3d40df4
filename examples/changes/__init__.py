"""What a program does with a database's changes, without Kafka.

audit.py   a table of who had which value when, each change once
"""

"""The outbox: requests that are rows of a database, taken into the relay's input exactly once."""

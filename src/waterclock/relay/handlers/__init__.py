"""Functions that are called with what is delivered: once each, retried, with a database's transaction."""

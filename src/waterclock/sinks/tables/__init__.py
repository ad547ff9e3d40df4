"""What the tables of a sink hold: results, dead letters, batches; and what a table that is there already must be."""

"""From producing a message to its committed row."""

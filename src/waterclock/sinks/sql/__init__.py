"""What the sinks in databases that speak SQL have in common."""

"""Change data capture, measured."""

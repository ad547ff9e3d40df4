"""What a running relay reports."""

"""What the relay costs."""

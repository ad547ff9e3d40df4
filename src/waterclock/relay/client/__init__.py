"""For programs: send, cancel, replace a delayed message, and hear what became of it."""

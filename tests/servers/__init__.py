"""Real servers for tests: what is started, and how."""

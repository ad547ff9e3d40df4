"""Real brokers in processes of their own, for tests and measurements: what is started, and how."""

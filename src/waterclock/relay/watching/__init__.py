"""What people see of a relay: its statistics, and what is pending, by running relays or by both logs beside any relay."""

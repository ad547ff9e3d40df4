"""What is done beside delivering: laps, snapshots, trims."""

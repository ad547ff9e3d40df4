"""Records of the relay's topics: requests, settlements, letters, moves, snapshots."""

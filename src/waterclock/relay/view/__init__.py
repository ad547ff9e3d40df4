"""What commands show of messages: of running relays, or of both logs beside any relay."""

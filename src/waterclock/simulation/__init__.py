"""One seed is one universe: the broker, its clients and all faults in one thread, under virtual time."""

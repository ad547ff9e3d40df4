"""One client must not stop the others: a well-behaved client beside each kind of hostile one."""

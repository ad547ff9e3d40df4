"""An order that is reminded of, and cancelled unless it is paid, by messages in the transactions of its rows."""

"""Timers: what the verbs cost, what a pending timer weighs, how late a live one is, what a loop spends on them."""

"""A consumer that books orders into a table, and the one order of its two steps that loses none. With waterclock.testing.

booker.py         twice the same consumer: one commits before it writes, the other writes before it commits
test_booker.py    a hundred universes of faults for each: `python -m pytest examples/bookings`
"""

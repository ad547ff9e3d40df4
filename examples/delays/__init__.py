"""Reminders by the thousand through two relays, one of them killed now and then: `waterclock demo delays`."""

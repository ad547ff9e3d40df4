"""What the relay costs: its store alone (store.py), and all of it beside others (campaign.py)."""

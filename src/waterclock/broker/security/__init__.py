"""Who may connect, and how they show it: users and their credentials, the mechanisms of SASL, the addresses."""

"""PostgreSQL for those who connect to it: a session that says what went wrong, and the URL of a database."""

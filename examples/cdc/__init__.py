"""A shop's database, its changes in a topic, and the same tables in another database: `waterclock demo cdc`."""

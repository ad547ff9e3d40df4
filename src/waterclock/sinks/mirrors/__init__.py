"""Tables that follow row changes."""

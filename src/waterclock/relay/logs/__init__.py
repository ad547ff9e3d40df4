"""The two logs of an input partition as a relay reads them."""

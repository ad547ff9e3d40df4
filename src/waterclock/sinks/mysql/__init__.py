"""MySQL and MariaDB as places for results."""

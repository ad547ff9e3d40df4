"""Two relays and a broker that are killed and paused under load; what readers saw is held against the promises."""

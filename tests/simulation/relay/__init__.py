"""Relays under the simulation: one to three of them on one input, unchanged, and what `docs/relay.md` promises of them."""

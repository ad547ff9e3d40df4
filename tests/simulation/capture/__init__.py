"""The capture under the simulation: unchanged, on a database that stands in, and what `docs/cdc.md` promises of it."""

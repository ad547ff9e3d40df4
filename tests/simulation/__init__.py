"""The broker under deterministic simulation: one seed is one universe."""

"""What the broker does by itself with its logs: retention, compaction, and reading them again for damage."""

"""From another capture to this one."""

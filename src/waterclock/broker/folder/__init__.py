"""A broker's data folder: what a start finds in it, who the broker is by it, its topics and their folders."""

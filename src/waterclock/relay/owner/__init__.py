"""An owner of an input partition: its take-over, its turns, what is due soon, what follows from a delivery."""

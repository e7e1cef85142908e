"""Files of our own: whole or absent, locked while they are written, checked when they are read."""

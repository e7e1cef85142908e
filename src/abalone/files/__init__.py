"""Files: atomic writes and locks, the cache folder, checks of stored JSON."""

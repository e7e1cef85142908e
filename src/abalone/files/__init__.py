"""Files: atomic writes, locks, the cache folder, checks of stored JSON."""

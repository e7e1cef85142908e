"""Files: atomic writes, locks, the cache folder, checksums, checks of stored JSON."""

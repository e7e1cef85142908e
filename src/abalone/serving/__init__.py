"""Models in use: exported files and an HTTP server."""

"""HTTP server for a model."""

"""Metrics of predictions and embeddings, the small models on embeddings, and the decision from scores to labels."""

"""How good a representation or a prediction is, and the small models fitted on embeddings."""

"""One training loop for every objective, and the stages that are made with it."""

"""Architectures of `transformers` whose forward pass runs on packed tokens."""

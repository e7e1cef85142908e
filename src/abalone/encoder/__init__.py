"""Encoder, heads, prototypes, memory queue and momentum encoder."""

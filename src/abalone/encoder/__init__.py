"""What is trained and what training keeps: encoder, heads, prototypes, queue, momentum encoder."""

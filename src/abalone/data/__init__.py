"""Data: from files to a `Corpus`, and from a corpus to tokens and batches."""

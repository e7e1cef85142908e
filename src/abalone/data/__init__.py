"""From files to one `Corpus`, and from a corpus to tokens and batches."""

"""Documents to fit and to score."""

import numpy as np
import torch


def documents(rows, dim=6, labels=3, *, noise=0.0, seed=0, dtype=torch.float32):
    """Features and labels of which half the documents carry each, cut by a plane (blurred by noise)."""
    generator = torch.Generator().manual_seed(seed)
    planes = torch.randn(labels, dim, generator=torch.Generator().manual_seed(99), dtype=dtype)
    X = torch.randn(rows, dim, generator=generator, dtype=dtype)
    blur = noise * torch.randn(rows, labels, generator=generator, dtype=dtype)
    return X, (X @ planes.T + blur > 0).int()


def scored_documents(seed=0, documents=60, labels=7, share=0.3, ties=False):
    """Labels, and probabilities that know something about them."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((documents, labels)) < share).astype(int)
    probabilities = np.clip(0.3 * truth + rng.random((documents, labels)) * 0.7, 0, 1)
    return truth, probabilities.round(1) if ties else probabilities

import math

import numpy as np
import pytest
import torch

from abalone.encoder.heads import LinearHead, ProjectionHead, Prototypes


def test_projection_is_the_formula():
    head = ProjectionHead(hidden=6, dim=3)
    x = torch.randn(4, 6)
    expected = (head.outer.weight @ torch.clamp(head.inner.weight @ x.T, min=0)).T
    torch.testing.assert_close(head(x), expected)
    assert ProjectionHead(384)(torch.randn(2, 384)).shape == (2, 256)


def test_prototypes_start_xavier_uniform():
    torch.manual_seed(0)
    weight = Prototypes(50)().detach()
    bound = math.sqrt(6 / (50 + 256))
    assert weight.shape == (50, 256)
    assert weight.abs().max() <= bound
    assert weight.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_prototypes_from_names_take_their_directions():
    vectors = torch.randn(3, 8)
    prototypes = Prototypes.from_embeddings(vectors)
    weight = prototypes()
    assert weight.requires_grad
    torch.testing.assert_close(torch.cosine_similarity(weight, vectors), torch.ones(3))
    # as long as a Xavier start is on average
    torch.testing.assert_close(weight.norm(dim=1), torch.full((3,), math.sqrt(8 * 2 / (3 + 8))))


def test_prototypes_need_a_matrix():
    with pytest.raises(ValueError, match=r"embeddings must be \[labels, dim\], got shape \(8,\)"):
        Prototypes.from_embeddings(torch.zeros(8))


def test_several_layers_merge_into_the_one_with_their_mean_weights():
    generator = torch.Generator().manual_seed(0)
    head = LinearHead(torch.randn(3, 4, 6, generator=generator), torch.randn(3, 4, generator=generator))
    features = torch.randn(5, 6, generator=generator).numpy()
    each = [LinearHead(head.weight[[i]], head.bias[[i]]).logits(features) for i in range(3)]
    np.testing.assert_allclose(head.merged().logits(features), np.mean(each, axis=0), atol=1e-5)
    assert head.merged().weight.shape == (1, 4, 6)
    one = LinearHead(head.weight[:1], head.bias[:1])
    np.testing.assert_array_equal(one.merged().logits(features), one.logits(features))

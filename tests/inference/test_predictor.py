"""One predictor over two backends: the same answers, and a clear error for what a backend does not have."""

import numpy as np
import pytest
from exported import LABELS, NAMES, TEXTS, fit

from abalone.inference import onnx_model, torch_backend
from abalone.inference.export import export
from abalone.inference.folder import save
from abalone.inference.onnx_model import OnnxModel
from abalone.inference.predictor import Predictor


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The same model in torch and in ONNX."""
    folder = tmp_path_factory.mktemp("predictor")
    predictor = fit(folder / "model", max_chunks=2).predictor_
    return predictor, OnnxModel.load(export(predictor, folder / "model.onnx").path)


def test_both_backends_read_texts_to_the_same_logits_and_embeddings(models):
    (in_torch, embedded), (in_onnx, read) = (model.backend.read(TEXTS) for model in models)
    assert isinstance(models[1], Predictor)
    assert (read.dtype, read.shape) == (embedded.dtype, embedded.shape)
    np.testing.assert_allclose(in_onnx, in_torch, atol=1e-5)
    np.testing.assert_allclose(read, embedded, atol=1e-5)


@pytest.mark.parametrize("at_a_time", [1, 7, len(TEXTS)])
def test_blocks_of_texts_do_not_change_what_is_read(models, at_a_time, monkeypatch):
    expected = [model.probabilities_and_vectors(TEXTS) for model in models]
    monkeypatch.setattr(onnx_model, "BLOCK", at_a_time)
    monkeypatch.setattr(torch_backend, "WINDOW", at_a_time)
    for model, (probabilities, vectors) in zip(models, expected, strict=True):
        found, embeddings = model.probabilities_and_vectors(TEXTS)
        np.testing.assert_allclose(found, probabilities, atol=1e-6)
        np.testing.assert_allclose(embeddings, vectors, atol=1e-6)


def test_both_are_evaluated_alike(models):
    (scores, by_label), (others, other_labels) = (model.evaluate(LABELS, model.scores(TEXTS)) for model in models)
    assert others == pytest.approx(scores, abs=1e-4)
    assert [label.name for label in other_labels] == [label.name for label in by_label] == list(NAMES)
    assert [label.support for label in other_labels] == [label.support for label in by_label]


def test_onnx_file_has_neither_settings_nor_torch_weights(models, tmp_path):
    in_torch, in_onnx = models
    assert in_torch.config.max_chunks == 2
    asked = (
        lambda: in_onnx.config,
        lambda: in_onnx.network,
        lambda: save(in_onnx, tmp_path / "model"),
        lambda: export(in_onnx, tmp_path / "again.onnx"),
    )
    for ask in asked:
        with pytest.raises(ValueError, match="is an ONNX file, which has neither torch weights nor settings"):
            ask()
    assert not list(tmp_path.iterdir())

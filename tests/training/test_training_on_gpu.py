"""Whole trainings on a GPU: recorded steps learn what plain ones on a CPU do, and go on after a break.

Nothing here runs without a GPU, so it asks for little but `fit`: a machine that has one is borrowed for minutes.
ABALONE_GPU_TESTS=cpu runs the same on a CPU, to see whether the tests themselves are right.
"""

import os
import warnings

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import tiny
from abalone import AbaloneClassifier
from abalone.training.checkpoint import restore_training_state, training_state
from abalone.training.interruption import TrainingInterrupted

DEVICE = os.environ.get("ABALONE_GPU_TESTS", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:.*(tf-idf|validation)"),
]
DOCUMENTS, LABELS, EPOCHS = 480, 5, 4
JOINT = "msc+0.3*zlpr"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Return an encoder whose heads are 64 wide, as our attention kernel needs them."""
    folder = tmp_path_factory.mktemp("encoder")
    tiny.save_encoder(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tiny.SPECIAL + tiny.WORDS), hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256, max_position_embeddings=64,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data():
    texts, labels = tiny.corpus(DOCUMENTS, labels=LABELS)
    return (texts[:400], labels[:400]), (texts[400:], labels[400:])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))


def train(encoder, data, device, **settings):
    """Return the model, and the loss of each epoch of its first stage."""
    small = {
        "recipe": "paper", "objective": JOINT, "max_length": 20, "epochs": EPOCHS, "queue_size": 64,
        "projection_dim": 16, "learning_rate": 1e-3, "head_learning_rate": 1e-3, "dropout": 0.0, "precision": "fp32",
        "batch_size": 16, "lexical": False, "neighbours": False,
    }  # fmt: skip
    fit_options = {name: settings.pop(name) for name in ("run_folder", "resume") if name in settings}
    model = AbaloneClassifier(encoder=encoder, device=device, **{**small, **settings})
    (texts, labels), validation = data
    model.fit(texts, labels, validation, **fit_options)
    return model, losses(model)


def losses(model):
    history = model.predictor_.story["history"]
    return np.array([entry["train_loss"] for entry in next(iter(history.values()))])


@pytest.mark.parametrize(
    ("objective", "rate"),
    # At 1e-3 supcon+bce makes 3 % of weights that differ by 1e-7, on a CPU too: nothing could be compared.
    [("bce", 1e-3), ("msc", 1e-3), (JOINT, 1e-3), ("supcon+bce", 1e-4), ("mulcon+bce", 1e-3)],
)
def test_losses_in_full_precision_are_those_of_a_cpu(objective, rate, encoder, data):
    settings = {"objective": objective, "learning_rate": rate, "head_learning_rate": rate}
    _, ours = train(encoder, data, DEVICE, **settings)
    _, plain = train(encoder, data, "cpu", **settings)
    assert ours[-1] < ours[0]
    np.testing.assert_allclose(ours, plain, rtol=2e-3)


@pytest.mark.parametrize("objective", ["bce", JOINT])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_losses_of_recorded_steps_in_bf16_are_near_those_of_a_cpu(objective, pooling, encoder, data):
    _, ours = train(encoder, data, DEVICE, objective=objective, pooling=pooling, precision="bf16")
    _, plain = train(encoder, data, "cpu", objective=objective, pooling=pooling)
    assert ours[-1] < ours[0]
    np.testing.assert_allclose(ours, plain, rtol=2e-2)


@pytest.mark.parametrize("filler", [0, 10**9], ids=["a graph for every size", "one for several sizes"])
def test_recorded_steps_equal_plain_ones(filler, encoder, data, monkeypatch):
    from abalone.encoder.fast import graph

    (texts, labels), validation = data
    short = (texts[:390], labels[:390]), validation  # the last batch of an epoch has 6 documents
    settings, shapes, record = {"precision": "bf16"}, set(), graph.Captured._record

    def noted(self, batch, documents, size):
        shapes.add(documents)
        record(self, batch, documents, size)

    monkeypatch.setattr(graph, "FILLER", filler)
    monkeypatch.setattr(graph.Captured, "_record", noted)
    _, recorded = train(encoder, short, DEVICE, **settings)
    assert shapes == ({6, 16} if DEVICE == "cuda" else set())
    monkeypatch.setattr(graph, "WARM_UP", 10**9)  # plain for ever
    _, plain = train(encoder, short, DEVICE, **settings)
    np.testing.assert_allclose(recorded, plain, rtol=5e-3)


@pytest.mark.parametrize("settings", [{"accumulation": 2}, {"precision": "fp16"}, {"freeze_layers": 1}], ids=str)
def test_steps_that_are_not_recorded_learn(settings, encoder, data):
    if DEVICE == "cpu" and settings.get("precision") == "fp16":
        pytest.skip("fp16 is for GPUs")
    _, ours = train(encoder, data, DEVICE, **{"precision": "bf16", **settings})
    assert ours[-1] < 0.95 * ours[0]


def test_dropout_is_drawn_anew_in_every_recorded_step(encoder, data):
    _, first = train(encoder, data, DEVICE, precision="bf16", dropout=0.3)
    _, other = train(encoder, data, DEVICE, precision="bf16", dropout=0.3, seed=1)
    assert first[-1] < first[0]
    assert not np.allclose(first, other, rtol=1e-5)


def test_interrupted_training_goes_on_to_the_same_losses(encoder, data, tmp_path, monkeypatch):
    settings = {"precision": "bf16", "checkpoint_seconds": 0.0}
    _, whole = train(encoder, data, DEVICE, **settings)
    from abalone.training import checkpoint

    written, write = [], checkpoint.Checkpoints.write

    def interrupt(self, *args, **kwargs):
        write(self, *args, **kwargs)
        self.wait()
        written.append(1)
        if len(written) == 60:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "write", interrupt)
        with pytest.raises((KeyboardInterrupt, TrainingInterrupted)):
            train(encoder, data, DEVICE, run_folder=tmp_path / "run", **settings)
    _, resumed = train(encoder, data, DEVICE, run_folder=tmp_path / "run", resume=True, **settings)
    assert len(written) == 60
    np.testing.assert_allclose(resumed, whole, rtol=1e-2)


def test_a_checkpoint_has_the_random_numbers_that_would_have_come():
    layer = torch.nn.Linear(2, 2).to(DEVICE)
    optimiser = torch.optim.AdamW(layer.parameters())
    state = training_state(layer, optimiser)
    drawn = torch.rand(8, device=DEVICE)
    restore_training_state(layer, optimiser, state)
    assert torch.equal(torch.rand(8, device=DEVICE), drawn)


def test_nan_stops_training_before_it_is_saved(encoder, data, tmp_path):
    with pytest.raises(ValueError, match="NaN or infinite"):
        train(encoder, data, DEVICE, precision="bf16", learning_rate=1e30, clip=1e30, run_folder=tmp_path / "run")
    for path in (tmp_path / "run").rglob("*.safetensors"):
        from safetensors.torch import load_file

        assert all(tensor.isfinite().all() for tensor in load_file(path).values() if tensor.is_floating_point())


def test_the_default_recipe_trains_across_folds(encoder, data):
    (texts, labels), _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AbaloneClassifier(encoder=encoder, device=DEVICE, max_length=20, epochs=3, folds=3, learning_rate=1e-3)
        model.fit(texts, labels)
    scores, _ = model.evaluate_out_of_fold()
    assert scores["micro_f1"] > 0.8


def test_a_trained_model_predicts_the_same_on_a_cpu(encoder, data, tmp_path):
    model, _ = train(encoder, data, DEVICE, precision="bf16")
    model.save_pretrained(tmp_path / "model")
    texts = data[1][0]
    on_cpu = AbaloneClassifier.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(model.predict_proba(texts), on_cpu.predict_proba(texts), atol=1e-3)

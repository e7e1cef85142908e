"""Cross-fitting: what folds hold out, what they leave, and that a break in any of them costs nothing but time."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import tiny
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.data.seen import text_hashes
from abalone.training import crossfit, pipeline
from abalone.training.folds import divide, learnable
from abalone.training.objectives import Objective
from abalone.training.pipeline import fit

pytestmark = pytest.mark.usefixtures("one_split")

NAMES = tuple(f"topic {j}" for j in range(5))
EPOCHS = 2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    texts, labels = tiny.corpus(120, seed=0)
    train, validation = Split(texts[:80], labels[:80]), Split(texts[80:], labels[80:])
    return Corpus(train, validation, Split([], labels[:0]), NAMES)


def make_config(encoder: str, **changes: object) -> Config:
    small = {
        "encoder": encoder,
        "pooling": "mean",
        "max_length": 16,
        "objective": "msc+zlpr",
        "queue_size": 24,
        "projection_dim": 8,
        "epochs": EPOCHS,
        "folds": 3,
        "batch_size": 16,
        "learning_rate": 2e-3,
        "head_learning_rate": 2e-3,
        "lexical": True,
        "neighbours": True,
        "device": "cpu",
        "precision": "fp32",
        "checkpoint_seconds": 0,
    }
    return Config(**{**small, **changes})


def test_it_runs(encoder, corpus, tmp_path):
    model = fit(make_config(encoder), corpus, tmp_path)
    print(model.story["scores"], model.decision.mixture, model.story["history"])
    assert len(model.out_of_fold) == 120

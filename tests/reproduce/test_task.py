"""One run with a tiny encoder, interrupted and resumed."""

import numpy as np
import pytest

import tiny
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.reproduce.grid import Run
from abalone.reproduce.task import Task, carry_out
from abalone.training import pipeline, run


def made_corpus() -> Corpus:
    splits = (Split(*tiny.corpus(60, seed=seed)) for seed in range(3))
    return Corpus(*splits, label_names=tuple(f"topic {j}" for j in range(5)))


def test_seconds_of_a_resumed_run_include_those_before(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    encoder = tiny.save_encoder(tmp_path / "encoder")
    config = Config(encoder=encoder, objective="bce", epochs=2, max_length=20, learning_rate=1e-3, device="cpu")
    task = Task(Run("L_BCE", config), "key", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "decide", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            carry_out(task, made_corpus(), "corpus", 1)
    trained = run.seconds_trained(task.folder)
    assert trained > 0
    monkeypatch.setattr(run, "seconds_trained", lambda folder: 1000.0)
    record = carry_out(task, made_corpus(), "corpus", 1)
    assert record["resumed"]
    assert record["epochs_run"] == 2
    np.testing.assert_allclose(record["training_seconds"], trained, atol=0.05)  # all of it was done before
    assert 1000 < record["seconds"] < 1100
    assert "earlier" not in record

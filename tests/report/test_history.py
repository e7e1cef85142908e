"""Learning curves from what a model folder remembers."""

import math

from abalone.report.history import learning_curves


def test_stages_and_measures():
    story = {
        "history": {
            "pretraining": [
                {"epoch": 1, "train_loss": 3.0, "validation_loss": math.nan, "seconds": 2.0},
                {"epoch": 2, "train_loss": 2.0, "seconds": 3.0},
            ],
            "finetuning": [{"epoch": 1, "train_loss": 0.5, "micro_f1": 0.25, "seconds": 1.0}],
        }
    }
    pretraining, finetuning = learning_curves(story)
    assert (pretraining["stage"], finetuning["stage"]) == ("pretraining", "finetuning")
    assert pretraining["epochs"] == [1, 2]
    assert pretraining["seconds"] == 5
    assert pretraining["curves"] == {"train_loss": [3.0, 2.0], "validation_loss": [None, None]}
    assert finetuning["curves"] == {"train_loss": [0.5], "micro_f1": [0.25]}


def test_no_history():
    assert learning_curves({}) == []
    assert learning_curves({"history": {}}) == []
    assert learning_curves({"history": {"pretraining": []}}) == []

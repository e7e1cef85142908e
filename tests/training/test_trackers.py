"""Trackers, by the libraries themselves."""

import pytest

from abalone.training.trackers import TensorBoard


def test_tensorboard_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr("abalone.training.trackers.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install '\.\[tensorboard\]'"):
        TensorBoard(str(tmp_path))

"""How a run is planned, and a run folder that somebody has edited or damaged."""

from types import SimpleNamespace

import made_up_runs
import pytest

import tiny
from abalone.config import Config
from abalone.model.encoder import load_encoder
from abalone.recipes import recipe
from abalone.training.objectives import Objective
from abalone.training.run import IDENTITY, Run, enter_folder, rate_for_width


def test_a_learning_rate_that_is_left_open_goes_by_the_encoders_width(tmp_path):
    encoder, _ = load_encoder(tiny.save_encoder(tmp_path / "encoder"), "mean", 0.1)
    plans = {}
    for config in (recipe(), recipe(learning_rate=3e-4), Config()):
        run = Run(config, SimpleNamespace(), SimpleNamespace(), SimpleNamespace(), tmp_path)
        plans[config.learning_rate] = run.plan(Objective(encoder, 3, config.objective, config)).learning_rate
    assert plans == {None: pytest.approx(5e-5 * 768 / 32), 3e-4: 3e-4, 5e-5: 5e-5}
    assert [rate_for_width(width) for width in (384, 768)] == [1e-4, 5e-5]  # MiniLM; base size, as in the paper


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"fingerprint": 3, "settings": {}}', b"\xff", b"[" * 5000, b"9" * 5000]
)
def test_a_damaged_identity_is_told(tmp_path, content):
    corpus = made_up_runs.corpus()
    enter_folder(tmp_path, Config(), corpus, resume=False)
    enter_folder(tmp_path, Config(), corpus, resume=True)
    (tmp_path / IDENTITY).write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json is damaged, so whose run this is cannot be told: start anew"):
        enter_folder(tmp_path, Config(), corpus, resume=True)

"""Cross-fitted probes choose rightly without a validation split, repeat themselves, and bear labels nearly empty."""

import numpy as np
import pytest
import torch
from made_up import documents
from scipy.sparse import csr_array
from torch import nn

from abalone.encoder.heads import LinearHead
from abalone.errors import InputError
from abalone.evaluation.crossfit_probe import SETTINGS, CrossFitProbe, choose_setting
from abalone.evaluation.gridfits import GridFits, Setting, shuffled_batches


def quick(**settings):
    """A probe that is fitted in a moment."""
    return CrossFitProbe(**{"epochs": 5, "least_steps": 60, "batch_size": 64, "device": "cpu", **settings})


def cross_fitted(probe, X, Y, folds=3, chosen=None):
    """Logits [S, n, L] of documents by probes that have not seen them."""
    fold = np.arange(len(X)) % folds
    logits = np.empty((len(probe.settings) if chosen is None else 1, *Y.shape), np.float16)
    for number in range(folds):
        seen, unseen = fold != number, fold == number
        logits[:, unseen] = probe.heldout_logits(X[seen], Y[seen], X[unseen], chosen)
    return logits


def test_squared_hinge_equals_one_adamw_loop_a_fit():
    X, Y = documents(100, labels=2, noise=0.5, dtype=torch.float64)
    setting, steps = Setting(0.05, 0.1), 80
    batches = list(shuffled_batches(len(X), 32, steps, torch.Generator().manual_seed(5), torch.device("cpu")))
    fits = GridFits(X, Y.bool(), [setting], torch.zeros(1, 2, X.shape[1]), 32, steps, "squared_hinge")
    fits.train(iter(batches))
    model = nn.Linear(X.shape[1], 2, dtype=X.dtype)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    groups = [{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    for rows in batches:
        optimiser.zero_grad()
        (1 - (2 * Y[rows] - 1) * model(X[rows])).clamp(min=0).square().sum(1).mean().backward()
        optimiser.step()
        schedule.step()
    torch.testing.assert_close(fits.weight.value[0, 0], model.weight.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fits.bias.value[0, 0, :, 0], model.bias.detach(), rtol=1e-6, atol=1e-6)


def test_separable_labels_are_ranked_out_of_fold_whatever_centre_and_scale():
    X, Y = documents(300)
    for features in (X, 1e-3 * X, 50 * X + 200):
        logits = cross_fitted(quick(epochs=30), features, Y)[-1]
        assert ((logits > 0) == Y.numpy().astype(bool)).mean() > 0.93


def test_setting_that_learns_is_chosen_over_one_that_does_not():
    X, Y = documents(300, labels=4)
    for settings in ((Setting(1e-7, 0.0), Setting(0.03, 1.0)), (Setting(0.03, 1.0), Setting(1e-7, 0.0))):
        probe = quick(settings=settings)
        assert probe.settings[choose_setting(cross_fitted(probe, X, Y), Y)].learning_rate == 0.03


def test_choice_is_by_mean_over_labels_and_first_of_equals():
    Y = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]])  # the last label is not scored
    right = np.where(Y == 1, 2.0, -2.0)
    half = right.copy()
    half[:, 0] = -right[:, 0]
    assert choose_setting(np.stack([half, right, right]).astype(np.float16), Y) == 1
    assert choose_setting(np.stack([half, right, right]), np.zeros_like(Y)) == 0, "no label to score by: all are equal"


def test_fit_on_all_documents_gives_a_head_with_the_same_logits():
    X, Y = documents(200)
    probe = quick()
    weight, bias = probe.fit_chosen(X, Y, 1)
    assert weight.shape == (1, 3, X.shape[1])
    assert bias.shape == (1, 3)
    given = probe.heldout_logits(X, Y, X[:20])[1]
    np.testing.assert_allclose(LinearHead(weight, bias).logits(X[:20].numpy()), given, rtol=2e-3, atol=2e-2)


def test_chosen_setting_alone_gives_the_logits_it_had_among_others():
    X, Y = documents(150)
    probe = quick()
    among, alone = cross_fitted(probe, X, Y), cross_fitted(probe, X, Y, chosen=2)
    assert alone.shape == (1, *Y.shape)
    np.testing.assert_allclose(alone[0], among[2], rtol=5e-3, atol=5e-2)


def test_same_seed_same_bits_and_global_generator_left_alone():
    X, Y = documents(150)
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    once = cross_fitted(quick(seed=3), X, Y)
    assert torch.equal(torch.rand(3), wanted)
    assert np.array_equal(once, cross_fitted(quick(seed=3), X, Y))
    assert not np.array_equal(once, cross_fitted(quick(seed=4), X, Y))


def test_label_with_one_document_has_one_low_logit_where_it_was_not_seen():
    X, Y = documents(90)
    Y[:, 0] = 0
    Y[0, 0] = 1  # in the first fold, whose probe is trained without it
    probe = quick()
    logits = cross_fitted(probe, X, Y)
    assert np.isfinite(logits).all()
    unseen = logits[:, np.arange(90) % 3 == 0, 0]
    assert np.unique(unseen).size == 1
    assert (unseen < -2).all()
    assert 0 <= choose_setting(logits, Y) < len(SETTINGS)
    weight, _ = probe.fit_chosen(X, Y, 0)
    assert weight[0, 0].abs().sum() > 0  # trained on all documents it has something to go by


def test_label_without_documents_says_no_to_all():
    X, Y = documents(90)
    Y[:, 1] = 0
    logits = cross_fitted(quick(), X, Y)
    assert (logits[:, :, 1] < -2).all()
    choose_setting(logits, Y)
    weight, bias = quick().fit_chosen(X, Y, 0)
    assert weight[0, 1].abs().sum() == 0
    assert bias[0, 1] < -2


def test_label_that_all_documents_carry_is_finite():
    X, Y = documents(90)
    Y[:, 1] = 1
    logits = cross_fitted(quick(epochs=30), X, Y)
    assert np.isfinite(logits).all()
    assert (logits[-1, :, 1] > 0).all()


def test_setting_that_overflows_is_never_chosen():
    X, Y = documents(120)
    probe = quick(settings=(Setting(1e38, 1.0), Setting(0.03, 1.0)))
    logits = cross_fitted(probe, X, Y)
    assert np.isnan(logits[0]).any()
    assert np.isfinite(logits[1]).all()
    assert choose_setting(logits, Y) == 1
    with pytest.raises(ValueError, match="overflowed with every setting"):
        choose_setting(logits[:1], Y)
    with pytest.raises(ValueError, match="the probe of label 0 overflowed"):
        probe.fit_chosen(X, Y, 0)


@pytest.mark.parametrize("overflowed", ["weight", "bias"])
def test_a_probe_is_refused_whatever_of_it_has_overflowed(overflowed, monkeypatch):
    (X, Y), fitted = documents(40), {"weight": torch.zeros(1, 3, 6), "bias": torch.zeros(1, 3)}
    fitted[overflowed][0, 1] = np.inf
    monkeypatch.setattr(CrossFitProbe, "_fitted", lambda *_: [(np.arange(3), fitted["weight"], fitted["bias"])])
    with pytest.raises(InputError, match="the probe of label 1 overflowed"):
        quick().fit_chosen(X, Y, 0)


def test_blocks_of_labels_give_what_all_together_give(monkeypatch):
    X, Y = documents(150, labels=7)
    wanted = cross_fitted(quick(), X, Y)
    weight, bias = quick().fit_chosen(X, Y, 1)
    for limit, value in (("WEIGHTS_AT_ONCE", 2 * len(SETTINGS) * X.shape[1]), ("TARGETS_AT_ONCE", 2 * len(X))):
        with monkeypatch.context() as patched:
            patched.setattr(f"abalone.evaluation.probe.{limit}", value)
            patched.setattr("abalone.evaluation.crossfit_probe.SCORED_AT_ONCE", 10)
            given = cross_fitted(quick(), X, csr_array(Y.numpy()))
            in_blocks = quick().fit_chosen(X, Y, 1)
        np.testing.assert_allclose(given, wanted, rtol=5e-3, atol=5e-2)
        torch.testing.assert_close(in_blocks, (weight, bias), rtol=1e-3, atol=1e-4)


def test_documents_all_alike_are_no_division_by_zero():
    X, Y = torch.ones(40, 5), torch.arange(80).reshape(40, 2) % 2
    assert np.isfinite(quick().heldout_logits(X, Y, X)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"settings": ()}, "settings must hold at least one"),
        ({"settings": (Setting(0.0, 1.0),)}, "learning rates above 0"),
        ({"settings": (Setting(0.1, float("nan")),)}, "weight decays of at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CrossFitProbe(**settings)


def test_shapes_that_do_not_fit_are_refused():
    X, Y = documents(30)
    with pytest.raises(ValueError, match="same number of rows"):
        quick().heldout_logits(X[:20], Y, X)
    with pytest.raises(InputError, match="X_heldout"):
        quick().heldout_logits(X, Y, X[:, :4])
    with pytest.raises(ValueError, match=r"heldout must be \[settings, 30, 3\]"):
        choose_setting(np.zeros((2, 29, 3), np.float16), Y)

"""The probe chooses rightly, repeats itself, and says what it cannot work with."""

import json
import math

import numpy as np
import pytest
import torch
from made_up import documents
from safetensors.torch import load, save
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score

from abalone.errors import InputError
from abalone.evaluation.gridfits import Setting
from abalone.evaluation.probe import LinearProbe, best_settings, probe_device


def quick(**settings):
    """A grid that is fitted in a moment."""
    return LinearProbe(**{"learning_rates": (0.1, 0.01), "weight_decays": (0.01, 1e-4), "epochs": 5, **settings})


def fitted(**settings):
    return quick(**settings).fit(*documents(200), *documents(60, seed=1))


def test_same_seed_same_bits():
    once, again = fitted(seed=3), fitted(seed=3)
    torch.rand(7)  # the global generator is none of the probe's business
    third = fitted(seed=3)
    for probe in (again, third):
        assert torch.equal(once.weight, probe.weight)
        assert torch.equal(once.bias, probe.bias)
    assert not torch.equal(once.weight, fitted(seed=4).weight)


def test_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    fitted()
    assert torch.equal(torch.rand(3), wanted)


def test_separable_data_is_separated():
    train, validation, test = (documents(rows, 20, 8, seed=seed) for rows, seed in ((1000, 0), (300, 1), (300, 2)))
    probe = LinearProbe(epochs=40, batch_size=64).fit(*train, *validation)
    assert f1_score(test[1], probe.predict_proba(test[0]) >= 0.5, average="macro") > 0.95


def test_each_label_keeps_its_best_setting():
    train, validation = documents(150, 10, 6, noise=2.0), documents(80, 10, 6, noise=2.0, seed=1)
    probe = quick(learning_rates=(1, 0.1, 0.001), weight_decays=(1, 0.01)).fit(*train, *validation)
    f1 = {}
    for setting in probe.grid:
        alone = quick(learning_rates=(setting.learning_rate,), weight_decays=(setting.weight_decay,))
        predicted = alone.fit(*train, *validation).predict_proba(validation[0]) >= 0.5
        f1[setting] = f1_score(validation[1], predicted, average=None, zero_division=0)
    assert len(set(probe.chosen)) > 1  # else the choice is not tested
    for label, setting in enumerate(probe.chosen):
        assert f1[setting][label] == max(scores[label] for scores in f1.values())
        assert probe.validation_f1[label].item() == pytest.approx(f1[setting][label])


def test_training_is_the_papers_unless_told_otherwise():
    rates, decays = (0.01, 0.1, 1), (1, 0.1, 0.01, 0.0001, 0.000001)  # appendix A; test_gridfits.py has what they do
    assert LinearProbe().grid == [Setting(rate, decay) for rate in rates for decay in decays]
    assert (LinearProbe().initialisations, LinearProbe().epochs, LinearProbe().batch_size) == (3, 40, 256)


def test_grid_goes_from_cautious_to_bold():
    assert quick().grid == [Setting(0.01, 0.01), Setting(0.01, 1e-4), Setting(0.1, 0.01), Setting(0.1, 1e-4)]


@pytest.mark.parametrize(
    ("f1", "log_likelihood", "best"),
    [
        ([0.2, 0.5, 0.4], [-1.0, -9.0, -2.0], 1),  # F1 first
        ([0.5, 0.5, 0.4], [-3.0, -2.0, -1.0], 1),  # then likelihood
        ([0.0, 0.0, 0.0], [-2.0, -2.0, -2.0], 0),  # then the more cautious
        ([np.nan, 0.0, 0.0], [np.nan, -2.0, -1.0], 2),  # never one that overflowed
    ],
)
def test_choice(f1, log_likelihood, best):
    column = np.array(f1)[:, None], np.array(log_likelihood)[:, None]
    assert best_settings(*column, np.array([True])).tolist() == [best]


def test_label_without_documents_follows_the_others():
    f1 = np.array([[0.3, 0.9, 0.0], [0.8, 0.7, 0.0]])
    likelihood = np.array([[-1.0, -1.0, -1.0], [-9.0, -9.0, -9.0]])
    assert best_settings(f1, likelihood, np.array([True, True, False])).tolist() == [1, 0, 1]


def test_label_without_documents_takes_no_setting_that_overflowed_for_it():
    f1, likelihood = np.array([[0.3, 0.0], [0.8, np.nan]]), np.array([[-1.0, -1.0], [-1.0, np.nan]])
    assert best_settings(f1, likelihood, np.array([True, False])).tolist() == [1, 0]


def test_labels_without_positives():
    (X, Y), (X_val, Y_val) = documents(200), documents(60, seed=1)
    Y[:, 0], Y_val[:, 1] = 0, 0
    probe = quick(epochs=50).fit(X, Y, X_val, Y_val)
    probabilities = probe.predict_proba(X_val)
    assert np.isfinite(probabilities).all()
    assert (probabilities[:, 0] < 0.5).all()
    assert probe.validation_f1[:2].isnan().all()
    assert probe.validation_f1[2] > 0.9
    assert probe.chosen[:2] == [probe.chosen[2]] * 2
    nothing = quick().fit(X, Y, X_val, torch.zeros_like(Y_val))
    assert nothing.validation_f1.isnan().all()


def test_one_label_and_fewer_documents_than_a_batch():
    probe = quick(epochs=60).fit(*documents(40, labels=1), *documents(30, labels=1, seed=1))
    assert probe.predict_proba(documents(5)[0]).shape == (5, 1)
    assert probe.validation_f1.item() > 0.9


def test_huge_features_stay_finite():
    train, validation = documents(100), documents(50, seed=1)
    probe = LinearProbe(epochs=3).fit(1e6 * train[0], train[1], 1e6 * validation[0], validation[1])
    assert np.isfinite(probe.predict_proba(1e6 * validation[0])).all()
    assert probe.weight.isfinite().all()


def test_overflowing_fits_are_never_kept():
    train, validation = documents(100), documents(50, seed=1)
    probe = quick(learning_rates=(1e38, 0.1)).fit(*train, *validation)
    assert {setting.learning_rate for setting in probe.chosen} == {0.1}
    assert probe.weight.isfinite().all()
    with pytest.raises(ValueError, match="every fit of label 0 overflowed"):
        quick(learning_rates=(1e38,)).fit(*train, *validation)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precisions(dtype):
    X, Y = documents(200)
    X_val, Y_val = documents(60, seed=1)
    probe = quick(epochs=50).fit(X.to(dtype), Y, X_val.to(dtype), Y_val)
    assert probe.weight.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    assert probe.validation_f1.min() > 0.9


def test_arrays_tensors_memory_maps_and_sparse_labels_agree(tmp_path):
    (X, Y), (X_val, Y_val) = documents(200), documents(60, seed=1)
    np.save(tmp_path / "X.npy", X.numpy())
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    wanted = quick().fit(X, Y, X_val, Y_val)
    got = quick().fit(mapped, csr_array(Y.numpy()), X_val.numpy(), Y_val.bool().numpy())
    assert torch.equal(wanted.weight, got.weight)
    np.testing.assert_array_equal(wanted.predict_proba(X), got.predict_proba(mapped))


def test_probability_is_the_mean_over_initialisations(monkeypatch):
    monkeypatch.setattr("abalone.evaluation.probe.SCORED_AT_ONCE", 40)  # several parts, the last one smaller
    probe, X = fitted(), documents(20)[0]
    each = torch.sigmoid(X @ probe.weight.mT + probe.bias.unsqueeze(1))  # [I, n, L]
    np.testing.assert_allclose(probe.predict_proba(X), each.mean(0), atol=1e-6)
    assert probe.predict_proba(X[:0]).shape == (0, 3)


def test_scoring_in_parts_changes_nothing(monkeypatch):
    wanted = fitted()
    monkeypatch.setattr("abalone.evaluation.gridfits.SCORED_AT_ONCE", 90)
    assert fitted().chosen == wanted.chosen
    assert torch.equal(fitted().validation_f1, wanted.validation_f1)


def test_state_survives_json_and_safetensors():
    probe, X = fitted(), documents(20)[0]
    config, tensors = probe.state()
    again = LinearProbe.from_state(json.loads(json.dumps(config)), load(save(tensors)))
    np.testing.assert_array_equal(probe.predict_proba(X), again.predict_proba(X))
    assert again.chosen == probe.chosen
    assert again.grid == probe.grid
    assert (again.epochs, again.seed) == (probe.epochs, probe.seed)


def test_works_under_autocast():
    probe, X = fitted(), documents(20)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(fitted().weight, probe.weight)
        np.testing.assert_array_equal(probe.predict_proba(X), fitted().predict_proba(X))


def test_needs_validation():
    with pytest.raises(ValueError, match=r"validation documents.*fit\(X, Y, X_val, Y_val\)"):
        quick().fit(*documents(20))
    with pytest.raises(ValueError, match=r"fit\(X, Y, X_val, Y_val\)"):
        quick().fit(*documents(20), documents(20)[0])


def test_needs_fitting():
    for use in (lambda p: p.predict_proba(documents(5)[0]), LinearProbe.state):
        with pytest.raises(NotFittedError, match="fit"):
            use(quick())


@pytest.mark.parametrize("spoilt", ["X", "X_val"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_names_features_that_are_not_finite(spoilt, value):
    (X, Y), (X_val, Y_val) = documents(20), documents(10, seed=1)
    {"X": X, "X_val": X_val}[spoilt][7, 2] = value
    with pytest.raises(ValueError, match=rf"^{spoilt} holds NaN or infinite values, first in row 7"):
        quick().fit(X, Y, X_val, Y_val)


def test_names_the_part_that_is_not_finite_when_predicting(monkeypatch):
    monkeypatch.setattr("abalone.evaluation.probe.SCORED_AT_ONCE", 60)
    probe, X = fitted(), documents(25)[0]
    X[13, 0] = math.nan
    with pytest.raises(ValueError, match=r"^X\[10:20\] holds NaN or infinite values, first in row 3"):
        probe.predict_proba(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y, x, y: (X[:-1], Y, x, y), r"X and Y .*rows.*\(19, 6\) and \(20, 3\)"),
        (lambda X, Y, x, y: (X, Y, x, y[:-1]), r"X_val and Y_val .*rows.*\(10, 6\) and \(9, 3\)"),
        (lambda X, Y, x, y: (X, Y, x[:, :-1], y), r"X_val must be \[rows, 6\] to match X, got shape \(10, 5\)"),
        (lambda X, Y, x, y: (X, Y, x, y[:, :-1]), r"Y_val must be \[rows, 3\] to match Y, got shape \(10, 2\)"),
        (lambda X, Y, x, y: (X[0], Y, x, y), r"X must be \[documents, features\], got shape \(6,\)"),
        (lambda X, Y, x, y: (X[:0], Y[:0], x, y), r"X must not be empty, got shape \(0, 6\)"),
        (lambda X, Y, x, y: (X, Y, x[:0], y[:0]), r"X_val must not be empty"),
        (lambda X, Y, x, y: (X, Y[:, :0], x, y), r"Y must have documents and labels, got shape \(20, 0\)"),
        (lambda X, Y, x, y: (X, Y[:, 0], x, y), r"Y must be \[rows, labels\], got shape \(20,\)"),
        (lambda X, Y, x, y: (X, np.asarray(Y)[:, 0], x, y), r"Y must be \[rows, labels\], got shape \(20,\)"),
        (lambda X, Y, x, y: (X, 2 * Y, x, y), r"Y must be 0 or 1 everywhere, found 2"),
        (lambda X, Y, x, y: (X.int(), Y, x, y), r"X must be floating point"),
    ],
)
def test_refuses_what_does_not_fit_together(change, message):
    with pytest.raises(InputError, match=message):
        quick().fit(*change(*documents(20), *documents(10, seed=1)))


def test_predict_refuses_another_width():
    with pytest.raises(ValueError, match=r"X must be \[documents, 6\] as in fit, got shape \(5, 4\)"):
        fitted().predict_proba(documents(5, dim=4)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rates": ()}, "at least one value"),
        ({"learning_rates": (0.0,)}, "learning_rates must be finite numbers above 0, got 0.0"),
        ({"weight_decays": (-1.0,)}, "weight_decays must be a finite number of at least 0, got -1.0"),
        ({"initialisations": 0}, "initialisations must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_refuses_settings(settings, message):
    with pytest.raises(InputError, match=message):
        LinearProbe(**settings)


def test_devices(monkeypatch):
    wanted = fitted(device="cpu").weight
    assert torch.equal(fitted(device=torch.device("cpu")).weight, wanted)
    with pytest.raises(ValueError, match="no device is called 'gpu'"):
        fitted(device="gpu")
    monkeypatch.setattr("abalone.evaluation.probe.choose_device", lambda name: torch.device("mps"))
    assert torch.equal(fitted().weight, wanted), "where there is no float64 the CPU takes over"
    assert probe_device("auto") == torch.device("cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_steps_equal_the_cpu():
    train, validation = documents(300, dtype=torch.float64), documents(100, seed=1, dtype=torch.float64)
    cpu, cuda = (quick(device=device, epochs=50).fit(*train, *validation) for device in ("cpu", "cuda"))
    assert cpu.chosen == cuda.chosen
    torch.testing.assert_close(cpu.weight, cuda.weight, rtol=1e-6, atol=1e-6)

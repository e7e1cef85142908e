import json

import numpy as np
import pytest
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.evaluation import mixing
from abalone.evaluation.decision import Mixture, mix
from abalone.evaluation.mixing import GRID, choose_weight, choose_weights, fit_decision
from abalone.evaluation.neighbours_in_numpy import to_logits
from abalone.evaluation.thresholds import fit_thresholds


def truth_and_view(documents=1200, labels=8, share=0.15, noise=1.5, seed=0):
    """Labels, and a function that gives logits which see them through noise of their own."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((documents, labels)) < share).astype(int)

    def view(strength=1.0):
        return strength * (4.0 * truth - 2) - 1 + rng.normal(0, noise, truth.shape)

    return truth, view


def test_a_mixture_is_a_weighted_mean():
    logits, expert = np.array([[2.0, -4.0]]), np.array([[0.0, 4.0]])
    np.testing.assert_allclose(mix(logits, expert, 0.25), [[1.5, -2.0]])
    assert np.array_equal(mix(logits, expert, 0), logits)
    assert np.array_equal(mix(logits, expert, 1), expert)


@pytest.mark.parametrize("objective", ["macro", "micro"])
def test_a_useless_expert_is_not_heard(objective):
    truth, view = truth_and_view()
    logits, noise = view(), np.random.default_rng(9).normal(-3, 2, truth.shape)
    assert choose_weight(logits, noise, truth, objective) == 0.0


@pytest.mark.parametrize("objective", ["macro", "micro"])
def test_experts_that_err_elsewhere_are_heard_alike(objective):
    truth, view = truth_and_view()
    weight = choose_weight(view(), view(), csr_array(truth), objective)
    assert 0.3 <= weight <= 0.7  # equally good, and their errors are independent: one half is best


def test_the_better_of_two_weighs_more():
    truth, view = truth_and_view()
    weak, strong = view(strength=0.4), view(strength=1.0)
    assert choose_weight(weak, strong, truth) > 0.5 > choose_weight(strong, weak, truth) > 0


def test_an_expert_that_knows_everything_is_heard_and_one_that_repeats_is_not():
    truth, view = truth_and_view()
    logits = view()
    assert choose_weight(logits, 20.0 * truth - 10, truth) > 0.3
    assert choose_weight(logits, logits, truth) == 0.0


def test_an_expert_for_one_rare_label_counts_for_macro_f1_only():
    truth, view = truth_and_view(documents=3000, labels=12, noise=0.8, seed=3)
    truth[:, 0] = np.random.default_rng(1).random(3000) < 0.01
    logits = view()
    logits[:, 0] = np.random.default_rng(2).normal(-5, 1, 3000)  # blind to the rare label
    expert = np.random.default_rng(4).normal(-1, 1, truth.shape)
    expert[:, 0] = 6.0 * truth[:, 0] - 5 + np.random.default_rng(5).normal(0, 0.5, 3000)
    assert choose_weight(logits, expert, truth, "macro") > choose_weight(logits, expert, truth, "micro")


def test_a_gain_within_the_noise_is_no_gain():
    truth, view = truth_and_view()
    logits = view()
    for seed in range(3):
        echo = logits + np.random.default_rng(seed).normal(0, 0.1, truth.shape)
        assert choose_weight(logits, echo, truth) == 0.0


def test_no_document_is_scored_with_thresholds_it_had_a_say_in(monkeypatch):
    truth, view = truth_and_view(200)
    applied = []

    def watched(probabilities, labels, *, objective):
        seen, fitted = set(probabilities[:, 0]), fit_thresholds(probabilities, labels, objective=objective)

        class Watched:
            def apply(self, others):
                assert seen.isdisjoint(others[:, 0])
                applied.append(len(others))
                return fitted.apply(others)

        return Watched()

    monkeypatch.setattr(mixing, "fit_thresholds", watched)
    choose_weight(view(), view(), truth)
    assert set(applied) == {100}
    assert len(applied) == len(GRID) * mixing.SPLITS * 2


def test_the_choice_is_the_same_each_time():
    truth, view = truth_and_view(300)
    logits, expert = view(), view()
    weights = {choose_weight(logits, expert, truth) for _ in range(3)}
    assert len(weights) == 1
    assert weights <= set(GRID)


def test_sample_of_many_documents_is_of_all_of_them(monkeypatch):
    """The first documents, as many as there are labels, are no sample: a file may be sorted."""
    monkeypatch.setattr(mixing, "ENOUGH", 4000)
    truth, view = truth_and_view(2000)
    logits, expert = view(), view()
    expert[:8] = -20.0 * truth[:8] + 10
    logits[:8] = 20.0 * truth[:8] - 10
    assert 0.3 <= choose_weight(logits, expert, truth) <= 0.7


def test_labels_without_a_document_do_not_matter():
    truth, view = truth_and_view(400)
    logits, expert = view(), view()
    weight = choose_weight(logits, expert, truth)
    wider = [np.hstack([matrix, np.full((400, 900), -5.0)]) for matrix in (logits, expert)]
    assert weight > 0
    assert choose_weight(*wider, np.hstack([truth, np.zeros((400, 900), dtype=int)])) == weight


@pytest.mark.parametrize("documents", [1, 2])
def test_too_few_documents_to_split_give_no_weight(documents):
    truth = np.eye(2, dtype=int)[:documents] * np.array([[1, 0]])
    assert choose_weight(np.zeros((documents, 2)), 9.0 * truth, truth) == 0.0


def test_probabilities_at_the_ends_have_finite_logits():
    logits = to_logits(np.array([[0.0, 0.01, 0.25, 1.0]]), edge=0.05)
    np.testing.assert_allclose(logits, [[-np.log(19), -np.log(19), -np.log(3), np.log(19)]])


def test_a_mixture_hears_one_expert_after_the_other(tmp_path):
    logits, first, second = (np.full((2, 3), value) for value in (0.0, 1.0, -1.0))
    mixture = Mixture({"lexical": 0.5, "neighbours": 0.2})
    experts = {"neighbours": second, "lexical": first}
    np.testing.assert_allclose(mixture.apply(logits, experts), mix(mix(logits, first, 0.5), second, 0.2))
    assert Mixture.from_dict(json.loads(json.dumps(mixture.to_dict()))) == mixture
    assert list(mixture.to_dict()) == ["lexical", "neighbours"]


def test_a_mixture_is_chosen_expert_by_expert():
    truth, view = truth_and_view()
    logits, helpful = view(), view()
    noise = np.random.default_rng(9).normal(-3, 2, truth.shape)
    mixture = choose_weights(logits, {"noise": noise, "helpful": helpful}, truth)
    assert mixture.weights == {"noise": 0.0, "helpful": choose_weight(logits, helpful, truth)}
    assert np.array_equal(mixture.apply(logits, {"helpful": helpful}), mix(logits, helpful, mixture.weights["helpful"]))


def test_bad_input_is_refused():
    logits, truth = np.zeros((4, 2)), np.eye(4, 2, dtype=int)
    with pytest.raises(
        ValueError, match=r"logits and expert_logits must have the same shape, got \(4, 2\) and \(4, 1\)"
    ):
        mix(logits, logits[:, :1], 0.5)
    with pytest.raises(ValueError, match=r"logits and expert must have the same shape, got \(4, 2\) and \(3, 2\)"):
        choose_weight(logits, logits[:3], truth)
    with pytest.raises(ValueError, match=r"logits and labels must have the same shape, got \(4, 2\) and \(3, 2\)"):
        choose_weight(logits, logits, truth[:3])
    with pytest.raises(ValueError, match="expert hold nan in row 0, column 0"):
        choose_weight(logits, np.full((4, 2), np.nan), truth)
    with pytest.raises(ValueError, match="objective must be one of macro, micro, got 'half'"):
        choose_weight(logits, logits, truth, "half")
    for weight in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"weight must lie in \[0, 1\], got"):
            mix(logits, logits, weight)
        with pytest.raises(ValueError, match=r"weight of lexical must lie in \[0, 1\], got"):
            Mixture({"lexical": weight})
    with pytest.raises(ValueError, match=r"needs the logits of 'lexical', got those of \['neighbours'\]"):
        Mixture({"lexical": 0.5}).apply(logits, {"neighbours": logits})
    with pytest.raises(ValueError, match=r"edge must lie between 0 and 0\.5, got 0\.5"):
        to_logits(np.zeros((1, 1)), edge=0.5)
    with pytest.raises(ValueError, match=r"probabilities must lie in \[0, 1\], found 2\.0"):
        to_logits(np.array([[2.0]]), edge=0.1)


def test_an_expert_for_rare_labels_weighs_for_macro_f1_and_not_for_micro_f1():
    rng = np.random.default_rng(0)
    truth = rng.random((400, 4)) < [0.5, 0.03, 0.03, 0.03]
    right, noise = np.where(truth, 3.0, -3.0), rng.normal(size=truth.shape)
    weak = np.where([True, False, False, False], right, noise)  # knows the frequent label only
    expert = np.where([True, False, False, False], 30 * noise, right)  # and drowns that one in noise
    weights = {
        goal: fit_decision(
            weak, {"rare": expert}, csr_array(truth), np.array([900, 300, 60, 20]), Config(thresholds=goal)
        ).mixture
        for goal in ("macro", "half", "micro")
    }
    assert weights["macro"].weights["rare"] > 0.2
    assert weights["half"] == weights["macro"]
    assert weights["micro"].weights["rare"] < 0.2

"""What is fitted and scored block by block is what is fitted and scored at once, and no block is large."""

import numpy as np
import pytest
import torch
from made_up import documents
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.encoder.heads import LinearHead
from abalone.evaluation import matrices
from abalone.evaluation.gridfits import GridFits
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.matrices import EVERY, Computed, column_blocks, held, of_documents, row_blocks, stacked
from abalone.evaluation.metrics import evaluate, per_label
from abalone.evaluation.mixing import choose_weight, fit_decision
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.evaluation.probe import LinearProbe

DOCUMENTS, LABELS, SMALL = 60, 17, 100  # pairs at once: several blocks of rows, and several of columns


@pytest.fixture
def scored():
    """Logits of a classifier and an expert, with labels that both half know; frequent labels come first."""
    rng = np.random.default_rng(0)
    truth = rng.random((DOCUMENTS, LABELS)) < np.linspace(0.4, 0.05, LABELS)
    logits, expert = (2 * truth - 1.5 + rng.normal(0, 1.5, truth.shape) for _ in range(2))
    return logits.astype(np.float32), expert.astype(np.float32), csr_array(truth.astype(np.int32))


@pytest.fixture
def small(monkeypatch):
    def few_at_once(pairs: int = SMALL) -> None:
        monkeypatch.setattr(matrices, "AT_ONCE", pairs)

    return few_at_once


def test_any_rows_of_stacked_parts_are_those_of_one_matrix(small):
    whole = np.arange(27, dtype=np.float32).reshape(9, 3)
    parts = [whole[:4], whole[4:5], Computed((4, 3), lambda rows, columns: whole[5:][rows, columns])]
    assert np.array_equal(stacked(parts), whole)
    small(5)
    together = stacked(parts)
    assert isinstance(together, Computed)
    for start in range(9):
        for stop in range(start + 1, 10):
            np.testing.assert_array_equal(together[start:stop, EVERY], whole[start:stop])
            np.testing.assert_array_equal(together[start:stop, 1:], whole[start:stop, 1:])
    rows = np.array([8, 0, 4, 3, 5, 5])
    np.testing.assert_array_equal(together[rows, :2], whole[rows, :2])


def test_any_columns_of_some_documents_are_those_of_the_matrix(small):
    whole, rows = np.arange(27).reshape(9, 3), np.array([8, 0, 4, 4])
    table = Computed(whole.shape, lambda rows, columns: whole[rows, columns])
    np.testing.assert_array_equal(of_documents(table, rows), whole[rows])
    small(5)
    some = of_documents(table, rows)
    assert isinstance(some, Computed)
    np.testing.assert_array_equal(some[1:3, EVERY], whole[rows[1:3]])
    np.testing.assert_array_equal(some[EVERY, 1:], whole[rows, 1:])
    np.testing.assert_array_equal(some[1:, np.array([2, 0])], whole[rows[1:]][:, [2, 0]])


def nowhere(matrix: np.ndarray, most: int = SMALL) -> Computed:
    """The matrix, for whoever asks for no more than is allowed at once."""

    def block(rows, columns):
        asked = matrix[rows, columns]
        assert asked.size <= max(most, *matrix.shape), f"a block of {asked.shape} was asked for"
        return asked

    return Computed(matrix.shape, block)


def test_blocks_cover_everything_once(small):
    assert list(row_blocks((3, 5))) == [slice(0, 3)]
    small(10)
    assert list(row_blocks((3, 5))) == [slice(0, 2), slice(2, 3)]
    assert list(column_blocks((3, 5))) == [slice(0, 3), slice(3, 5)]
    assert list(row_blocks((2, 99))) == [slice(0, 1), slice(1, 2)]
    assert list(row_blocks((0, 5))) == []


def test_what_is_small_is_held(small):
    table = Computed((4, 5), lambda rows, columns: np.ones((4, 5))[rows, columns])
    assert isinstance(held(table), np.ndarray)
    small(19)
    assert isinstance(held(table), Computed)


@pytest.mark.parametrize("objective", ["macro", "micro", "half"])
@pytest.mark.parametrize("at_least_one", [False, True])
def test_a_decision_is_the_same_in_blocks(objective, at_least_one, scored, small):
    logits, _, labels = scored
    config = Config(thresholds=objective, at_least_one=at_least_one)
    frequencies = labels.sum(axis=0)
    whole = fit_decision(logits, {}, labels, frequencies, config)
    probabilities = whole.probabilities(logits, {})
    wanted = evaluate(labels, whole.labels(probabilities), probabilities=probabilities, frequencies=frequencies)

    small()
    fitted = fit_decision(nowhere(logits), {}, labels, frequencies, config)
    np.testing.assert_allclose(fitted.calibration.temperatures, whole.calibration.temperatures, rtol=1e-4)
    np.testing.assert_allclose(fitted.thresholds.values, whole.thresholds.values, rtol=1e-3)
    in_blocks = whole.scores(nowhere(logits), {})
    assert isinstance(in_blocks, Computed)
    assert isinstance(whole.given(in_blocks), Computed)
    given = evaluate(labels, whole.given(in_blocks), probabilities=in_blocks, frequencies=frequencies)
    assert given == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("objective", ["macro", "micro"])
def test_thresholds_are_the_same_to_the_last_bit(objective, scored, small):
    logits, _, labels = scored
    config = Config(thresholds=objective, calibrate=False)
    wanted = fit_decision(logits, {}, labels, labels.sum(axis=0), config).thresholds.values
    small()
    given = fit_decision(nowhere(logits), {}, labels, labels.sum(axis=0), config).thresholds.values
    np.testing.assert_array_equal(given, wanted)


def test_scores_of_single_labels_and_of_some_labels(scored, small):
    logits, _, labels = scored
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    predicted, some = probabilities >= 0.5, np.arange(LABELS) % 3 > 0
    names = [str(label) for label in range(LABELS)]
    wanted = per_label(labels, predicted, names), evaluate(labels, predicted, probabilities=probabilities, scored=some)
    small()
    table = per_label(labels, nowhere(predicted), names)
    scores = evaluate(labels, nowhere(predicted), probabilities=nowhere(probabilities), scored=some)
    assert table == wanted[0]
    assert scores == pytest.approx(wanted[1], abs=1e-12)


def test_values_that_are_no_probabilities_are_refused_when_they_are_met(scored, small):
    labels = scored[2]
    small()
    wrong = np.full(labels.shape, 0.5)
    wrong[40, 3] = 1.5
    with pytest.raises(ValueError, match=r"probabilities must lie in \[0, 1\], found 1.5"):
        evaluate(labels, nowhere(wrong >= 0.5), probabilities=nowhere(wrong))


def test_the_weight_of_an_expert_is_chosen_on_a_sample(scored, small):
    logits, expert, labels = scored
    small(DOCUMENTS * LABELS // 2)
    half = DOCUMENTS * LABELS // 2
    chosen = choose_weight(nowhere(logits, half), nowhere(expert, half), labels)
    assert chosen == choose_weight(nowhere(logits, half), nowhere(expert, half), labels)
    assert 0 < chosen < 1  # both know half


def test_a_head_in_blocks(small):
    generator = torch.Generator().manual_seed(0)
    head = LinearHead(torch.randn(3, LABELS, 8, generator=generator), torch.randn(3, LABELS, generator=generator))
    embeddings = torch.randn(DOCUMENTS, 8, generator=generator).numpy()
    wanted = head.logits(embeddings)
    assert isinstance(head.logits_in_blocks(embeddings), np.ndarray)
    small()
    logits = head.logits_in_blocks(embeddings)
    assert isinstance(logits, Computed)
    np.testing.assert_allclose(logits[5:9, 2:11], wanted[5:9, 2:11], atol=1e-6)
    np.testing.assert_allclose(logits[np.array([3, 1]), EVERY], wanted[[3, 1]], atol=1e-6)
    np.testing.assert_array_equal(head.predicted_at_half(embeddings)[EVERY, 3:5], wanted[:, 3:5] >= 0)


def test_experts_in_blocks(scored, small):
    _, _, labels = scored
    rng = np.random.default_rng(1)
    words = [f"w{label}" for label in range(LABELS)]
    texts = [" ".join([*rng.choice(words, 3), *np.array(words)[row > 0]]) for row in labels.toarray()]
    labels = csr_array(labels.toarray() * (np.arange(LABELS) != 4))  # one label that nothing can be learnt of
    lexical = LexicalModel().fit(texts, labels).calibrate(texts, labels)
    embeddings = rng.normal(size=(DOCUMENTS, 6))
    neighbours = NearestNeighbours(k=5).fit(embeddings, labels)
    wanted = lexical.scores(texts), neighbours.logits(embeddings)
    small()
    for given, matrix in zip(
        (lexical.logits_in_blocks(texts), neighbours.logits_in_blocks(embeddings)), wanted, strict=True
    ):
        assert isinstance(given, Computed)
        np.testing.assert_allclose(given[7:30, 2:9], matrix[7:30, 2:9], rtol=1e-5)
        np.testing.assert_allclose(given[EVERY, np.array([4, 16])], matrix[:, [4, 16]], rtol=1e-5)


def test_probes_in_blocks_of_labels(monkeypatch):
    (X, Y), (X_val, Y_val) = documents(200, labels=7), documents(60, labels=7, seed=1)
    Y[:, 2], Y_val[:, 5] = 0, 0  # two that take the setting of the others
    grid = {"learning_rates": (0.1, 0.01), "weight_decays": (0.01, 1e-4), "epochs": 20}
    wanted = LinearProbe(**grid).fit(X, Y, X_val, Y_val)
    fitted_together = []
    original = GridFits.train

    def train(fits, batches):
        fitted_together.append(fits.targets.shape[1])
        original(fits, batches)

    monkeypatch.setattr(GridFits, "train", train)
    for limit, value in (("WEIGHTS_AT_ONCE", 2 * 3 * 4 * X.shape[1]), ("TARGETS_AT_ONCE", 2 * len(X))):
        with monkeypatch.context() as patched:
            patched.setattr(f"abalone.evaluation.probe.{limit}", value)
            given = LinearProbe(**grid).fit(X, csr_array(Y.numpy()), X_val, Y_val)
        assert fitted_together == [2, 2, 1, 2]
        fitted_together.clear()
        assert given.chosen == wanted.chosen
        torch.testing.assert_close(given.weight, wanted.weight, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(given.validation_f1, wanted.validation_f1, equal_nan=True)

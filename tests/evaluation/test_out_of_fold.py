"""Out-of-fold answers: decided without the document's own fold, kept small, read back or refused."""

import random
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save
from scipy.sparse import csr_array

import judged
from abalone.config import Config
from abalone.data.hashes import text_hashes
from abalone.evaluation import matrices
from abalone.evaluation.calibration import expected_calibration_error
from abalone.evaluation.matrices import EVERY, Computed
from abalone.evaluation.metrics import evaluate, per_label
from abalone.evaluation.out_of_fold import FLOOR, RANKING, OutOfFold
from abalone.evaluation.thresholds import fit_thresholds
from mutations import mutated

DOCUMENTS, LABELS = 90, 8
TEXTS = [f"document {i}" for i in range(DOCUMENTS)]
FREQUENCIES = np.linspace(60, 2, LABELS).astype(int)


@pytest.fixture(scope="module")
def truth():
    return (np.random.default_rng(1).random((DOCUMENTS, LABELS)) < np.linspace(0.6, 0.05, LABELS)).astype(int)


@pytest.fixture(scope="module")
def probabilities(truth):
    return judged.probabilities_of(truth)


@pytest.fixture(scope="module")
def made(truth):
    return judged.out_of_fold(TEXTS, truth)


@pytest.mark.parametrize("objective", ["macro", "micro", "half"])
@pytest.mark.parametrize("at_least_one", [False, True])
def test_labels_are_given_by_thresholds_of_the_other_folds(objective, at_least_one, truth, probabilities):
    config = Config(thresholds=objective, at_least_one=at_least_one, calibrate=objective == "macro")
    folds = np.arange(DOCUMENTS) % 3 + 4  # whatever their numbers are
    found = OutOfFold.of(TEXTS, folds, truth, probabilities, config)
    for fold in np.unique(folds):
        own, others = folds == fold, folds != fold
        cut = fit_thresholds(probabilities[others], truth[others], objective=objective, calibrated=objective == "macro")
        expected = cut.apply(probabilities[own], at_least_one=at_least_one)
        np.testing.assert_array_equal(found.given.toarray()[own], expected)
    np.testing.assert_array_equal(found.labels.toarray(), truth)
    assert found.num_folds == 3


def test_thresholds_are_fitted_to_what_could_be_learnt(truth, probabilities):
    learnable = truth.copy()
    learnable[:, 3] = 0
    folds = np.arange(DOCUMENTS) % 2
    found = OutOfFold.of(TEXTS, folds, truth, probabilities, Config(), learnable=learnable)
    cut = fit_thresholds(probabilities[folds == 1], learnable[folds == 1], calibrated=True)
    np.testing.assert_array_equal(found.given.toarray()[folds == 0], cut.apply(probabilities[folds == 0]))
    np.testing.assert_array_equal(found.labels.toarray(), truth)
    with pytest.raises(ValueError, match="labels and learnable must have the same shape"):
        OutOfFold.of(TEXTS, folds, truth, probabilities, Config(), learnable=learnable[:5])


def test_a_single_part_is_judged_by_halves_crosswise(truth, probabilities):
    copies = [*TEXTS[:-1], TEXTS[0]]
    found = OutOfFold.of(copies, np.zeros(DOCUMENTS, int), truth, probabilities, Config())
    assert found.num_folds == 1
    order = np.unique(text_hashes(copies), return_inverse=True)[1] % 2
    assert order[0] == order[-1]  # copies are on the same side
    for half in (0, 1):
        cut = fit_thresholds(probabilities[order != half], truth[order != half], calibrated=True)
        np.testing.assert_array_equal(found.given.toarray()[order == half], cut.apply(probabilities[order == half]))


def test_one_document_and_folds_whose_others_carry_nothing_have_thresholds_of_a_half(truth, probabilities):
    alone = OutOfFold.of(["one"], [0], truth[:1], probabilities[:1], Config())
    np.testing.assert_array_equal(alone.given.toarray(), probabilities[:1] >= 0.5)
    bare = np.zeros((4, LABELS), int)
    bare[0, 0] = 1
    found = OutOfFold.of(list("abcd"), [0, 1, 1, 1], bare, probabilities[:4], Config())
    np.testing.assert_array_equal(found.given.toarray()[0], probabilities[0] >= 0.5)


def test_pairs_below_the_floor_are_left_out_unless_true_or_given(made, truth, probabilities):
    kept = made.probabilities.toarray() > 0
    expected = (probabilities.astype(np.float32) >= made.floors) | (truth > 0) | (made.given.toarray() > 0)
    np.testing.assert_array_equal(kept, expected)
    assert 0 < expected.mean() < 1
    most = np.maximum(20, 2 * truth.sum(axis=0))
    reached = (probabilities.astype(np.float32) >= made.floors).sum(axis=0)
    assert (reached >= np.minimum(most, (probabilities.astype(np.float32) >= FLOOR).sum(axis=0))).all()
    assert (reached[made.floors < FLOOR] <= most[made.floors < FLOOR]).all()
    assert (made.floors < FLOOR).any()
    assert made.probabilities.dtype == np.float32
    np.testing.assert_array_equal(made.probabilities.toarray()[kept], probabilities.astype(np.float32)[kept])


def test_scores_are_those_of_all_probabilities(made, truth, probabilities):
    expected = evaluate(truth, made.given, probabilities=probabilities, frequencies=FREQUENCIES)
    assert made.scores(FREQUENCIES) == expected
    names = [f"label {j}" for j in range(LABELS)]
    assert made.by_label(names, FREQUENCIES) == per_label(truth, made.given, names, FREQUENCIES)
    assert "macro_f1_tail" not in made.scores()
    intervals = made.intervals(FREQUENCIES)
    for name in ("micro_f1", "macro_f1", "macro_f1_tail"):
        assert intervals[name].value == pytest.approx(expected[name])
        assert intervals[name].low < expected[name] < intervals[name].high


def test_said_keeps_sums_and_gives_a_true_pair_no_advantage(made, truth, probabilities):
    said = made.said()[EVERY, EVERY]
    firm = (probabilities.astype(np.float32) >= made.floors) | (made.given.toarray() > 0)
    np.testing.assert_array_equal(said[firm], probabilities.astype(np.float32)[firm])
    np.testing.assert_allclose(said.sum(axis=0), probabilities.sum(axis=0), rtol=1e-6)
    for label in range(LABELS):
        assert len(set(said[:, label][~firm[:, label]].tolist())) <= 1
    assert expected_calibration_error(said, truth) == pytest.approx(expected_calibration_error(probabilities, truth))
    rows, columns = np.array([5, 2, 80]), slice(3, 6)
    np.testing.assert_array_equal(made.said()[rows, columns], said[rows, columns])
    np.testing.assert_array_equal(made.said()[10:20, np.array([7, 0])], said[10:20][:, [7, 0]])


def test_block_by_block_it_is_the_same(made, truth, probabilities, monkeypatch):
    monkeypatch.setattr(matrices, "AT_ONCE", 100)

    def block(rows, columns):
        asked = probabilities[rows, columns]
        assert asked.size <= max(100, DOCUMENTS, LABELS)
        return asked

    found = OutOfFold.of(
        text_hashes(TEXTS), np.arange(DOCUMENTS) % 3, csr_array(truth), Computed(truth.shape, block), Config()
    )
    for name in ("documents", "folds"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    for name in ("labels", "probabilities", "given"):
        np.testing.assert_array_equal(getattr(found, name).toarray(), getattr(made, name).toarray())
    np.testing.assert_allclose(found.rest, made.rest, rtol=1e-6)  # sums in another order
    assert found.ranking == pytest.approx(made.ranking)


def test_read_back_it_is_the_same_and_small(made):
    content = made.to_bytes()
    again = OutOfFold.from_bytes(content)
    assert again.to_bytes() == content
    for name in ("labels", "probabilities", "given", "said"):
        mine, its = getattr(made, name), getattr(again, name)
        both = (mine()[EVERY, EVERY], its()[EVERY, EVERY]) if name == "said" else (mine.toarray(), its.toarray())
        np.testing.assert_array_equal(*both)
    assert again.scores(FREQUENCIES) == made.scores(FREQUENCIES)
    assert len(content) < 1000 + DOCUMENTS * (12 + 7 * LABELS)


def test_probabilities_of_zero_and_one_are_read_back(made):
    said = made.probabilities.data
    certain = np.arange(len(said), dtype=np.float32) % 2
    again = OutOfFold.from_bytes(changed(made, probabilities=certain))
    np.testing.assert_array_equal(again.probabilities.data, certain)


def test_the_best_documents_of_a_label_are_kept_however_improbable_unless_all_are_the_same():
    truth = np.zeros((400, 3), int)
    truth[:3, 0] = truth[3:6, 1] = truth[:, 2] = 1
    probabilities = np.full((400, 3), 1e-4)
    probabilities[:, 0] = np.linspace(1e-3, 1e-6, 400)
    found = OutOfFold.of(list(map(str, range(400))), np.arange(400) % 2, truth, probabilities, Config())
    of_label = np.diff(found.probabilities.T.tocsr().indptr)
    assert of_label[:2].tolist() == [20, 3]
    said = found.said()[EVERY, EVERY]
    np.testing.assert_array_equal(said[:20, 0], probabilities[:20, 0].astype(np.float32))
    assert len(set(said[20:, 0].tolist())) == 1
    assert set(said[:, 1].tolist()) == {np.float32(1e-4)}


def test_texts_are_found_whatever_their_white_space(made):
    found = made.rows(["document\n7", "Document 7", " document  89 ", "document 0", ""])
    assert found.tolist() == [7, -1, 89, 0, -1]
    assert made.rows([]).shape == (0,)


def test_a_label_whose_documents_lie_in_one_fold_was_unknown_to_its_judge():
    truth = np.zeros((12, 4), int)
    truth[:, 0] = 1
    truth[3, 1] = 1  # one document
    truth[[2, 5], 2] = 1  # two, in one fold
    probabilities = judged.probabilities_of(0 * truth)  # who does not know a label does not give it
    texts = [f"text {i}" for i in range(12)]
    found = OutOfFold.of(texts, np.arange(12) % 3, truth, probabilities, Config())
    assert found.untaught([12, 1, 2, 0]).tolist() == [1, 2]
    rows = found.by_label("abcd", np.array([12, 1, 2, 0]))
    assert [(row.support, row.recall) for row in rows[1:3]] == [(1, 0), (2, 0)]
    held_out = OutOfFold.of(texts, np.zeros(12, int), truth, probabilities, Config())
    assert held_out.untaught([99, 9, 2, 0]).tolist() == [2]  # others were in the part that is not listed


@pytest.mark.parametrize(
    ("folds", "told"),
    [
        ([0] * (DOCUMENTS - 1), "folds must be an integer for each of 90 documents"),
        ([0.5] * DOCUMENTS, "folds must be an integer for each"),
        ([-1] * DOCUMENTS, "folds must be from 0 to 65535, got -1 to -1"),
        ([2**16] * DOCUMENTS, "folds must be from 0 to 65535, got 65536"),
    ],
)
def test_folds_that_are_none_are_refused(folds, told, truth, probabilities):
    with pytest.raises(ValueError, match=told):
        OutOfFold.of(TEXTS, folds, truth, probabilities, Config())


def test_other_numbers_of_texts_are_refused(truth, probabilities):
    with pytest.raises(ValueError, match="there are 2 texts, and labels for 90"):
        OutOfFold.of(TEXTS[:2], np.zeros(DOCUMENTS, int), truth, probabilities, Config())
    with pytest.raises(ValueError, match=r"labels and probabilities must have the same shape"):
        OutOfFold.of(TEXTS, np.zeros(DOCUMENTS, int), truth, probabilities[:, :2], Config())


def changed(made: OutOfFold, **changes) -> bytes:
    return save({**load(made.to_bytes()), **changes})


def test_content_that_does_not_fit_together_is_refused(made):
    stored = load(made.to_bytes())
    columns, counts, said = (stored[name] for name in ("columns", "counts", "probabilities"))
    fewer = counts.copy()
    fewer[0] += 1
    nan = said.copy()
    nan[3] = np.nan
    for change, told in (
        ({"documents": stored["documents"].astype(np.int64)}, "documents are int64"),
        ({"documents": stored["documents"][None]}, r"documents are uint64 of shape \(1, 90\)"),
        ({"folds": stored["folds"][1:]}, r"folds are uint16 of shape \(89,\) instead of uint16 \(90,\)"),
        ({"counts": fewer}, "pairs together"),
        ({"columns": columns + np.uint8(LABELS)}, "columns name label .*, and there are 8 labels"),
        ({"columns": columns + (columns == LABELS - 1)}, "columns name label 8, and there are 8 labels"),
        ({"columns": columns[::-1].copy()}, "not in order"),
        ({"columns": np.zeros_like(columns)}, "not in order"),
        ({"probabilities": nan}, r"probabilities must lie in \[0, 1\]"),
        ({"probabilities": said + 1}, r"probabilities must lie in \[0, 1\]"),
        ({"marks": stored["marks"] + np.uint8(4)}, "marks must be at most 3"),
        ({"floors": stored["floors"][:3]}, "floors are float32"),
        ({"rest": stored["rest"] - 1}, r"rest must lie in \[0, 1\]"),
        ({"rest": np.zeros(0, np.float32), "floors": np.zeros(0, np.float32)}, "about 90 documents and 0 labels"),
        ({"rest": np.float32(0.5)}, r"instead of float32 \(1,\)"),
        ({"ranking": np.zeros(4)}, "ranking are float64"),
    ):
        with pytest.raises(ValueError, match=rf"^out_of_fold\.safetensors: .*{told}"):
            OutOfFold.from_bytes(changed(made, **{name: np.asarray(value) for name, value in change.items()}))
    with pytest.raises(ValueError, match=r"out_of_fold\.safetensors lacks 'marks'"):
        OutOfFold.from_bytes(save({name: value for name, value in stored.items() if name != "marks"}))
    for content in (b"", b"PK", made.to_bytes()[:-3], b"\xff" * 64):
        with pytest.raises(ValueError, match=r"out_of_fold\.safetensors is not a safetensors file"):
            OutOfFold.from_bytes(content)


def test_any_damage_is_refused_or_answers(made):
    content = made.to_bytes()
    for seed in range(300):
        damaged = mutated(content, random.Random(seed))
        try:
            found = OutOfFold.from_bytes(damaged)
        except ValueError as error:
            assert "out_of_fold.safetensors" in str(error)  # noqa: PT017
        else:
            found.scores()
            found.said()[EVERY, EVERY]


def test_parts_that_are_not_of_one_are_refused(made):
    with pytest.raises(ValueError, match="folds must have one entry for each of the 90 documents"):
        replace(made, folds=made.folds[:4])
    with pytest.raises(ValueError, match="ranking must hold"):
        replace(made, ranking={})
    for part in ("probabilities", "given"):
        with pytest.raises(ValueError, match=f"labels and {part} must have the same shape"):
            replace(made, **{part: getattr(made, part)[:, :4]})
    bare = replace(made, probabilities=csr_array(made.labels.shape, dtype=np.float32))
    with pytest.raises(ValueError, match="a label that is true or given has no probability"):
        bare.to_bytes()
    assert set(made.ranking) == set(RANKING)

"""The pools that a recipe is chosen on; training and scoring them takes a GPU and both corpora."""

import numpy as np
import pytest
from benchmarks.recipe.pools import FIFTHS, FRESH, SHOTS, Base, few_shots, pools, read_base, rows_of, write_base
from benchmarks.recipe.screen import OBJECTIVES, Pools, Run, file_of, runs, table
from scipy.sparse import csr_array

from abalone.data.tokens import TokenArray


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    return csr_array((rng.random((12_000, 12)) < np.geomspace(0.001, 0.3, 12)).astype(np.int32))


def test_pools_never_judge_what_they_train_on(labels):
    made = pools("made-up", labels)
    for name, pool in made.items():
        assert not set(pool.train) & set(pool.judged), name
    assert len(made["made-up-2000"].train) == 2000
    assert len(made["made-up-2000"].judged) == FRESH
    assert "made-up-8000" not in made  # it would leave too few to judge by


def test_fifths_judge_every_document_once(labels):
    made = pools("made-up", labels, seed=3)
    judged = [made["made-up" if fold == 0 else f"made-up/{fold}"].judged for fold in range(FIFTHS)]
    assert np.array_equal(np.sort(np.concatenate(judged)), np.arange(labels.shape[0]))


@pytest.mark.parametrize("shots", SHOTS)
def test_few_shots_give_each_label_its_documents_or_all_it_has(labels, shots):
    drawn = few_shots(labels, shots, np.random.default_rng(1))
    counts, all_of = (np.asarray(each.sum(axis=0)).ravel() for each in (labels[drawn], labels))
    assert (counts >= np.minimum(shots, all_of)).all()
    assert len(drawn) <= shots * labels.shape[1]


def test_a_base_comes_back_as_it_was_written_but_cut(tmp_path):
    tokens = TokenArray(np.arange(9, dtype=np.uint16), np.array([0, 2, 2, 9]), (101,), (102,))
    labels = csr_array(np.array([[1, 0], [0, 0], [1, 1]], dtype=np.int32))
    write_base(tmp_path / "base.npz", Base(tokens, labels), longest=4)
    back = read_base(tmp_path / "base.npz")
    assert [back.tokens.document(row).tolist() for row in range(3)] == [
        [101, 0, 1, 102],
        [101, 102],
        [101, 2, 3, 4, 5, 102],
    ]
    assert (back.labels != labels).nnz == 0
    assert rows_of(back.tokens, np.array([2])).document(0).tolist() == [101, 2, 3, 4, 5, 102]


def test_runs_have_files_of_their_own(tmp_path):
    assert len({file_of(tmp_path, run) for run in runs()}) == len(runs()) == len(set(runs()))


def test_seeds_draw_other_subsamples_and_keep_the_fifths(labels):
    drawn = Pools({"reuters": labels})
    first, second = drawn[Run("reuters-2000", "bce", 1)], drawn[Run("reuters-2000", "bce", 1, seed=1)]
    assert not np.array_equal(first.train, second.train)
    assert np.array_equal(drawn[Run("reuters/2", "bce", 1)].judged, drawn[Run("reuters/2", "bce", 1, seed=1)].judged)


def test_table_has_means_over_seeds_and_says_how_many_there_are():
    about = {"pool": "reuters-500", "folds": 1, "documents": 500}
    both = {"experts": ["lexical", "neighbours"], "epochs": 80}
    records = [
        about | {"seed": 0, "objective": "tf-idf + SVM", "experts": [], "macro_f1": 10.0},
        about | {"seed": 1, "objective": "tf-idf + SVM", "experts": [], "macro_f1": 20.0},
        about | both | {"seed": 0, "objective": "bce", "macro_f1": 30.0},
        about | both | {"seed": 0, "objective": "zlpr", "macro_f1": 40.0},
        about | both | {"seed": 1, "objective": "zlpr", "macro_f1": 41.0},
    ]
    missing = " | ".join(["–"] * (len(OBJECTIVES) - 2))
    assert table(records).splitlines()[-1] == f"| reuters-500 | 80 | 2 | 15.0 | 30.0 (1) | 40.5 | {missing} |"

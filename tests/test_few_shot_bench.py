"""`python -m benchmarks.recipe.few_shot` but for SetFit itself, which is not installed here."""

import json
from types import ModuleType

import benchmarks.recipe.few_shot as bench
import numpy as np
import pytest
from scipy.sparse import csr_array

import tiny
from abalone import AbaloneClassifier

POOL = "arxiv54-8shot"
NAMES = tiny.WORDS[:5]


@pytest.fixture
def made_up():
    """Texts and labels [300, 5], the last label on a single document."""
    texts, labels = tiny.corpus(300)
    dense = labels.toarray()
    dense[:, 4] = 0
    dense[7, 4] = 1
    return bench.Documents(texts, csr_array(dense))


def write_pools(folder, documents):
    rows = bench.drawn_pools("arxiv54", documents.labels)
    parts = {name: documents.take(drawn) for name, drawn in rows.items()} | {"test": documents.take(np.arange(40))}
    frequencies = np.asarray(documents.labels.sum(axis=0)).ravel().tolist()
    bench.write_documents(folder / "arxiv54.json.xz", parts, dict(zip(NAMES, frequencies, strict=True)))


class StandIn:
    """Says of every document what a SetFit model might: the words decide, and no label is more probable than not."""

    def __init__(self, columns):
        self.columns = columns

    def predict_proba(self, texts, as_numpy):
        assert as_numpy
        return np.array([[0.4 if tiny.WORDS[i] in text.split() else 0.1 for i in self.columns] for text in texts])

    def predict(self, texts, as_numpy):
        return (self.predict_proba(texts, as_numpy) > 0.5).astype(np.int64)


def test_pools_give_each_label_its_documents_or_all_it_has(made_up):
    pools = bench.drawn_pools("arxiv54", made_up.labels)
    assert set(pools) == {"arxiv54-8shot", "arxiv54-16shot"} <= set(bench.POOLS)
    for shots, rows in zip((8, 16), pools.values(), strict=True):
        counts, all_of = (labels.sum(axis=0) for labels in (made_up.labels[rows], made_up.labels))
        assert (counts >= np.minimum(shots, all_of)).all()
    assert all(map(np.array_equal, pools.values(), bench.drawn_pools("arxiv54", made_up.labels).values()))


def test_documents_come_back_as_they_were_written(made_up, tmp_path):
    documents = made_up.take(np.arange(30))
    documents.texts[0] = "Ωμέγα\n\u2028 \x00 end"
    parts = {POOL: documents, "test": bench.Documents(["none"], csr_array(np.zeros((1, 5), dtype=np.int32)))}
    names = ["zeta", "α", "b", "a", ""]  # in no order
    bench.write_documents(tmp_path / "arxiv54.json.xz", parts, dict(zip(names, range(5), strict=True)))
    task = bench.read_task(tmp_path, POOL)
    assert task.labelled.texts == documents.texts
    assert (task.labelled.labels != documents.labels).nnz == 0
    assert task.test.labels.shape == (1, 5)
    assert task.test.labels.nnz == 0
    assert task.frequencies.tolist() == [0, 1, 2, 3, 4]
    assert task.label_names == names


def test_thresholds_separate_labels_and_never_give_one_that_was_not_trained_on():
    truth = np.tile([[1, 0, 1], [0, 1, 1], [0, 1, 0], [0, 0, 0]], (6, 1))
    probabilities = np.where(truth == 1, 0.2, 0.02)
    tuned = bench.tuned_thresholds(probabilities, csr_array(truth), np.array([True, True, False]))
    assert np.array_equal(tuned.apply(probabilities), truth * [1, 1, 0])
    assert not tuned.apply(np.ones((1, 3)))[0, 2]


def test_our_decision_takes_probabilities_of_0_and_1():
    truth = np.tile([[1, 0], [0, 1], [1, 1], [0, 0]], (6, 1))
    given = bench.our_decision(truth.astype(float), csr_array(truth), np.array([12, 12]), truth[:4].astype(float))
    assert np.array_equal(given, truth[:4])


def test_setfit_trains_on_four_fifths_and_on_the_labels_that_these_carry(made_up, monkeypatch):
    trained = []

    def fit(texts, labels, encoder, seed, iterations):
        trained.append((texts, labels))
        return StandIn([0, 1, 2, 3])

    monkeypatch.setitem(bench.sys.modules, "setfit", ModuleType("setfit"))
    monkeypatch.setattr(bench, "fit_setfit", fit)
    lone = 7  # the one document with the last label, which is now in the fifth that is held out
    rest = np.delete(np.arange(100), lone)
    monkeypatch.setattr(bench, "exact_split", lambda *_: [rest[:80], np.append(rest[80:], lone)])
    documents = made_up.take(np.arange(100)), made_up.take(np.arange(100, 300))
    task = bench.Task(*documents, np.array([50, 40, 30, 20, 1]), NAMES)
    result = bench.run_setfit(task, "any", seed=0)
    assert trained[0][0] == [task.labelled.texts[row] for row in rest[:80]]
    assert trained[0][1].shape == (80, 4)
    assert set(result.scores) == set(bench.ROWS["setfit"])
    assert result.scores["setfit"]["macro_f1"] == result.scores["setfit, our decision"]["macro_f1"] == 80.0
    assert result.scores["setfit, predict()"]["micro_f1"] == 0


def record(method, seed, macro, seconds):
    scores = {name: {"micro_f1": 50.0, "macro_f1": macro, "macro_f1_tail": 10.0} for name in bench.ROWS[method]}
    return {
        "pool": POOL, "method": method, "seed": seed, "documents": 225, "labels": 53, "test_documents": 8540,
        "scores": scores, "training_seconds": seconds, "prediction_seconds": 1.0, "command": f"python {method}",
        "machine": {"gpu": "a GPU", "cpu": "a processor"},
    }  # fmt: skip


def test_summary_has_means_over_seeds_and_the_table_a_line_for_each_row():
    records = [record("setfit", 0, 40.0, 60.0), record("default", 1, 46.0, 14.0), record("default", 0, 44.0, 12.0)]
    rows = bench.summary(records)
    assert list(rows) == [POOL]
    assert list(rows[POOL]) == ["default", "setfit", "setfit, our decision", "setfit, predict()"]
    assert rows[POOL]["default"] == {
        "micro_f1": 50.0, "macro_f1": 45.0, "macro_f1_tail": 10.0, "training_seconds": 13.0, "prediction_seconds": 1.0,
        "documents": 225, "labels": 53, "test_documents": 8540, "device": "a GPU", "seeds": [0, 1],
        "command": "python default",
    }  # fmt: skip
    lines = bench.table(rows).splitlines()
    assert lines[2] == f"| {POOL} | 225 | default | 50.0 | 45.0 | 10.0 | 13.0 | 1.0 | 2 |"
    assert len(lines) == 2 + 4
    assert {line.count("|") for line in lines} == {10}


def test_each_pool_without_a_result_gets_a_process_of_its_own(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(bench.subprocess, "run", lambda command, check: started.append(command[3:]))
    done = bench.result_file(tmp_path, "reuters-16shot", "setfit", 0)
    done.parent.mkdir()
    done.touch()
    asked = ["setfit", "--output", str(tmp_path)]
    bench.main(asked)
    missing = [pool for pool in bench.POOLS if pool != "reuters-16shot"]
    assert started == [[*asked, "--pool", pool, "--seeds", "0"] for pool in missing]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # so few documents have much to be told of
def test_our_rows_are_trained_once_each_and_summed_up(made_up, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_pools(tmp_path, made_up)
    encoder = tiny.save_encoder(tmp_path / "encoder")
    asked = ["--output", str(tmp_path), "--pool", POOL, "--encoder", encoder]
    learnt, trained = [], AbaloneClassifier.fit

    def fit(self, *documents, label_names):
        learnt.append((self.encoder != "none", self.learn_names, label_names))
        return trained(self, *documents, label_names=label_names)

    monkeypatch.setattr(AbaloneClassifier, "fit", fit)
    for _ in range(2):
        bench.main(["default", *asked])
        bench.main(["unnamed", *asked])
        bench.main(["words", *asked])
        monkeypatch.setattr(bench, "run_ours", None)  # nothing is left to be trained
    assert learnt == [(True, True, NAMES), (True, False, NAMES), (False, True, NAMES)]
    bench.main(["table", "--output", str(tmp_path)])
    rows, shown = json.loads((tmp_path / "summary.json").read_text())[POOL], capsys.readouterr().out
    assert list(rows) == ["default", "unnamed", "words"]
    assert (tmp_path / "few_shot.md").read_text() in shown
    for name, row in rows.items():
        assert 0 <= row["macro_f1"] <= 100
        assert row["documents"] == len(bench.drawn_pools("arxiv54", made_up.labels)[POOL])
        assert f"| {POOL} | {row['documents']} | {name} | {row['micro_f1']:.1f} |" in shown

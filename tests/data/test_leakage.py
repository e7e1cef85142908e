"""Which documents a model is scored on: those it was not trained on, or else it is said."""

import json
import re
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tiny
from abalone import AbaloneClassifier, load_corpus
from abalone.data.corpus import assemble
from abalone.data.hashes import SeenTexts
from abalone.data.leakage import AllSeenError, corpus_of_training, documents_to_score
from abalone.data.load import read_source
from abalone.errors import InputError

TEXTS, MATRIX = tiny.corpus(120)
LABELS = [[f"label {j}" for j in row.nonzero()[0]] for row in MATRIX.toarray()]


@pytest.fixture
def data(tmp_path):
    """Documents without splits, but with a column that could be taken for them, and with other labels."""
    file = tmp_path / "papers.jsonl"
    rows = [
        {"text": text, "labels": labels, "kind": ["x"], "fold": ("train", "test")[number % 2]}
        for number, (text, labels) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def scored(data, trained_on, split=None, seen=None, **options):
    """The documents to score; models are given by the provenance of their data and what they have seen."""
    models = {
        name: SimpleNamespace(story={"provenance": then}, seen=(seen or {}).get(name))
        for name, then in trained_on.items()
    }
    return documents_to_score(str(data), models, split, **options)


def stored(corpus) -> dict[str, Any]:
    """The provenance as it comes back from a model folder."""
    return json.loads(json.dumps(dict(corpus.provenance)))


@pytest.mark.parametrize("seed", [0, 7])
def test_a_split_is_made_again_with_its_seed(seed, data):
    corpus = load_corpus(data, seed=seed)
    found = scored(data, {"model": stored(corpus)})
    assert (found.name, found.split, list(found.texts)) == ("papers", "test", list(corpus.test.texts))
    assert found.known_data
    assert not found.warnings
    assert [set(row) for row in found.labels] == [
        {corpus.label_names[j] for j in row.nonzero()[0]} for row in corpus.test.labels.toarray()
    ]
    assert list(scored(data, {"model": stored(corpus)}, "train").texts) == list(corpus.train.texts)


def test_split_for_a_model_that_says_nothing_is_that_of_a_new_corpus(data):
    found = scored(data, {"model": {}}, "test")
    assert list(found.texts) == list(load_corpus(data).test.texts)


def test_a_file_is_known_by_another_name(data):
    corpus = load_corpus(data, seed=7)
    renamed = data.rename(data.with_name("renamed.jsonl"))
    assert list(scored(renamed, {"model": stored(corpus)}).texts) == list(corpus.test.texts)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({"seed": 7}, {"split_column": "fold"}),
        ({"seed": 7}, {"label_column": "kind"}),
    ],
)
def test_a_split_that_cannot_be_made_again_is_told(then, now, data):
    corpus = load_corpus(data, **then)
    (doubt,) = scored(data, {"model": stored(corpus)}, **now).warnings
    assert doubt.startswith("model was trained on another split of papers, ")
    assert doubt.endswith("may be training documents of the model")
    assert not scored(data, {"model": stored(corpus)}, "all", **now).warnings  # who asks for all knows
    assert not scored(data, {"model": stored(corpus)}).warnings


def test_a_split_column_is_remembered(data):
    corpus = load_corpus(data, split_column="fold")
    found = scored(data, {"model": stored(corpus)})
    assert (found.split, list(found.texts), found.warnings) == ("test", TEXTS[1::2], [])


def test_models_of_several_splits(data):
    """One split can be new to one of them only."""
    first, second = load_corpus(data, seed=7), load_corpus(data, seed=8)
    trained_on = {"none": {}, "first": stored(first), "second": stored(second), "again": stored(first)}
    found = scored(data, trained_on)
    (doubt,) = found.warnings
    assert doubt.startswith("second was trained on another split of papers")
    assert list(found.texts) == list(first.test.texts)


def test_other_files_are_scored_as_a_whole(data):
    corpus = load_corpus(data, seed=7)
    data.write_text(data.read_text() + '{"text": "one more", "labels": ["label 1"]}\n')
    found = scored(data, {"model": stored(corpus)})
    assert (found.split, list(found.texts)) == ("all", [*TEXTS, "one more"])
    (doubt,) = found.warnings
    assert doubt.startswith("model was trained on another version of papers.jsonl: documents that are in both")
    assert scored(data.rename(data.with_name("new.jsonl")), {"model": stored(corpus)}).split == "all"


def test_what_a_model_knows_is_left_out_of_other_files(data):
    corpus = load_corpus(data, seed=7)
    model, seen = {"model": stored(corpus)}, {"model": SeenTexts.of(corpus.train.texts, corpus.validation.texts)}
    data.write_text(data.read_text() + '{"text": "one more", "labels": ["label 1"]}\n')
    found = scored(data, model, seen=seen)
    assert (found.split, sorted(found.texts)) == ("all", sorted([*corpus.test.texts, "one more"]))
    assert len(found.labels) == len(found.texts)
    left_out = 121 - len(found.texts)
    assert found.notes == [f"{left_out} of 121 documents of papers are not scored: model was trained or tuned on them."]
    assert not found.known_data
    assert len(scored(data, model, "all", seen).texts) == 121  # who asks for all knows
    (doubt,) = scored(data, model, "test", seen).warnings  # of a split that is made anew, and has others in it
    assert re.match(r"model was trained or tuned on \d+ of the \d+ scored documents: its scores will look", doubt)
    both = {**seen, "other": SeenTexts.of(corpus.test.texts)}
    assert list(scored(data, {**model, "other": {}}, seen=both).texts) == ["one more"]


def test_nothing_left_is_an_error(data):
    seen = {"model": SeenTexts.of(TEXTS)}
    with pytest.raises(AllSeenError, match=r"model was trained or tuned on every document of papers: add split='all'"):
        scored(data, {"model": {}}, seen=seen)


def test_out_of_fold_predictions_stand_in_where_all_is_seen(data):
    seen = {"model": SeenTexts.of(TEXTS), "other": SeenTexts.of(TEXTS)}

    def predictions_of(texts):
        return SimpleNamespace(
            rows=lambda asked: np.array([texts.index(each) if each in texts else -1 for each in asked])
        )

    judged = {"model": predictions_of(TEXTS[:50]), "other": predictions_of(TEXTS[30:])}
    found = scored(data, {"model": {}, "other": {}}, seen=seen, out_of_fold=judged)
    assert found.out_of_fold
    assert list(found.texts) == TEXTS[30:50]
    assert [set(row) for row in found.labels] == [set(labels) for labels in LABELS[30:50]]
    assert not found.warnings
    assert not scored(data, {"model": {}}, "all", seen, out_of_fold=judged).out_of_fold  # who asks for all gets all
    apart = {"model": predictions_of(TEXTS[:10]), "other": predictions_of(TEXTS[20:])}
    with pytest.raises(AllSeenError):
        scored(data, {"model": {}, "other": {}}, seen=seen, out_of_fold=apart)


def test_labels_of_a_model_that_no_document_carries_are_named(data):
    found = scored(data, {})
    assert found.absent(["label 0", "nowhere", "label 1"]) == ["nowhere"]


def test_the_splits_of_training_are_made_again(data):
    corpus = load_corpus(data, seed=7, label_column="labels")
    again = corpus_of_training(data, stored(corpus))
    for (_, split), (_, then) in zip(again.splits(), corpus.splits(), strict=True):
        assert list(split.texts) == list(then.texts)
        assert (split.labels != then.labels).nnz == 0


@pytest.mark.filterwarnings("ignore::UserWarning")  # so few documents
def test_a_classifier_is_scored_on_them(data, tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    corpus = load_corpus(data, label_column="labels", seed=7)
    classifier = AbaloneClassifier(recipe="words", folds=2).fit_corpus(corpus)
    found = documents_to_score(data, {"model": classifier.predictor_})
    assert list(found.texts) == list(corpus.test.texts)
    assert classifier.evaluate(found.texts, found.labels) == classifier.evaluate_split(corpus.test)[0]


def test_an_unknown_split_is_refused(data):
    with pytest.raises(InputError, match="no split is called 'tests'; there are train, validation, test, and all"):
        scored(data, {}, "tests")


def test_a_split_of_before_copies_were_kept_together_is_made_again_as_it_was(data):
    """Such a model does not say that they were."""
    data.write_text(data.read_text() * 2)
    read = read_source(data)
    then = assemble(read.documents, name="papers", origin="", seed=7, provenance=read.provenance, copies_together=False)
    now = load_corpus(data, seed=7)
    assert set(then.test.texts) & set(then.train.texts)
    assert not set(now.test.texts) & set(now.train.texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(scored(data, {"old": stored(then)}).texts) == list(then.test.texts)
        assert list(scored(data, {"new": stored(now)}).texts) == list(now.test.texts)


def test_how_labels_and_copies_were_read_is_remembered(data):
    data.write_text("".join(data.read_text().replace("label 1", name) for name in ("Label 1", "label 1")))
    corpus = load_corpus(data, seed=7, merge_case=True, drop_duplicates=True)
    assert sum(len(split) for _, split in corpus.splits()) == 120
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = scored(data, {"model": stored(corpus)})
    assert list(found.texts) == list(corpus.test.texts)
    assert set(found.labels.carried()) <= set(corpus.label_names)
    other = data.with_name("new.jsonl")
    other.write_text(data.read_text() + '{"text": "one more", "labels": ["LABEL 1"]}\n')
    found = scored(other, {"model": stored(corpus)})
    assert len(found.texts) == 241  # copies in other data are a person's own affair
    assert found.labels[240] == ("label 1",)


def test_an_encoding_is_remembered_for_the_same_file_alone(data):
    data.write_bytes(data.read_bytes().replace(b"label 1", b"\xe4"))
    corpus = load_corpus(data, encoding="latin-1")
    assert "ä" in corpus.label_names
    assert list(scored(data, {"model": stored(corpus)}).texts) == list(corpus.test.texts)
    other = data.with_name("new.jsonl")
    other.write_text('{"text": "ü", "labels": ["ä"]}\n', encoding="utf-8")
    found = scored(other, {"model": stored(corpus)})
    assert (list(found.texts), list(found.labels)) == (["ü"], [("ä",)])


def test_data_are_read_once(data, monkeypatch):
    from abalone.data import load

    reads, read_documents = [], load.read_documents
    monkeypatch.setattr(load, "read_documents", lambda *args, **kw: reads.append(args) or read_documents(*args, **kw))
    provenances = [stored(load_corpus(data, seed=seed)) for seed in (7, 7)]
    reads.clear()
    scored(data, dict(zip("ab", provenances, strict=True)))
    assert len(reads) == 1


def test_a_place_goes_with_a_known_corpus(data):
    with pytest.raises(ValueError, match=r"path= is only for known corpora, and .*papers\.jsonl is not one"):
        scored(data, {}, path=data.parent)
    assert len(scored("arxiv-sample", {}).texts) == len(load_corpus("arxiv-sample").test)

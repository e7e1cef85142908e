"""Which documents a model is scored on: those it was not trained on, or else it is said."""

import json
import warnings
from typing import Any

import pytest

import tiny
from abalone import load_corpus
from abalone.cli.scored import to_score
from abalone.data.corpus import assemble
from abalone.data.load import read_source
from abalone.data.seen import SeenTexts

OPTIONS: dict[str, Any] = dict.fromkeys(("path", "text_column", "label_column", "split_column", "label_separator"))
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
    return to_score(str(data), split, trained_on, seen or {}, **{**OPTIONS, "skip_bad_rows": False, **options})


def stored(corpus) -> dict[str, Any]:
    """The provenance as it comes back from a model folder."""
    return json.loads(json.dumps(dict(corpus.provenance)))


@pytest.mark.parametrize("seed", [0, 7])
def test_a_split_is_made_again_with_its_seed(seed, data):
    corpus = load_corpus(data, seed=seed)
    name, split, texts, labels = scored(data, {"model": stored(corpus)})
    assert (name, split, list(texts)) == ("papers", "test", list(corpus.test.texts))
    assert [set(row) for row in labels] == [
        {corpus.label_names[j] for j in row.nonzero()[0]} for row in corpus.test.labels.toarray()
    ]
    assert list(scored(data, {"model": stored(corpus)}, "train")[2]) == list(corpus.train.texts)


def test_a_file_is_known_by_another_name(data):
    corpus = load_corpus(data, seed=7)
    assert list(scored(data.rename(data.with_name("renamed.jsonl")), {"model": stored(corpus)})[2]) == list(
        corpus.test.texts
    )


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({"seed": 7}, {"split_column": "fold"}),
        ({"seed": 7}, {"label_column": ["kind"]}),
    ],
)
def test_a_split_that_cannot_be_made_again_is_told(then, now, data):
    corpus = load_corpus(data, **then)
    with pytest.warns(
        UserWarning, match="^model was trained on another split of papers, .* may be training documents of the model"
    ):
        scored(data, {"model": stored(corpus)}, **now)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scored(data, {"model": stored(corpus)}, "all", **now)  # who asks for all knows
        scored(data, {"model": stored(corpus)})


def test_a_split_column_is_remembered(data):
    corpus = load_corpus(data, split_column="fold")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, split, texts, _ = scored(data, {"model": stored(corpus)})
    assert (split, list(texts)) == ("test", TEXTS[1::2])


def test_models_of_several_splits(data):
    """One split can be new to one of them only."""
    first, second = load_corpus(data, seed=7), load_corpus(data, seed=8)
    trained_on = {"none": {}, "first": stored(first), "second": stored(second), "again": stored(first)}
    with pytest.warns(UserWarning, match="^second was trained on another split of papers") as told:
        _, _, texts, _ = scored(data, trained_on)
    assert (len(told), list(texts)) == (1, list(first.test.texts))


def test_other_files_are_scored_as_a_whole(data):
    corpus = load_corpus(data, seed=7)
    data.write_text(data.read_text() + '{"text": "one more", "labels": ["label 1"]}\n')
    with pytest.warns(
        UserWarning, match=r"^model was trained on another version of papers\.jsonl: documents that are in both"
    ):
        assert scored(data, {"model": stored(corpus)})[1:3] == ("all", [*TEXTS, "one more"])
    assert scored(data.rename(data.with_name("new.jsonl")), {"model": stored(corpus)})[1] == "all"


def test_what_a_model_knows_is_left_out_of_other_files(data, capsys):
    corpus = load_corpus(data, seed=7)
    model, seen = {"model": stored(corpus)}, {"model": SeenTexts.of(corpus.train.texts, corpus.validation.texts)}
    data.write_text(data.read_text() + '{"text": "one more", "labels": ["label 1"]}\n')
    _, split, texts, labels = scored(data, model, seen=seen)
    assert (split, sorted(texts)) == ("all", sorted([*corpus.test.texts, "one more"]))
    assert len(labels) == len(texts)
    assert f"{121 - len(texts)} of 121 documents of papers are not scored: model was trained or tuned on them" in (
        capsys.readouterr().err
    )
    assert len(scored(data, model, "all", seen)[2]) == 121  # who asks for all knows
    with pytest.warns(
        UserWarning,
        match=r"^model was trained or tuned on \d+ of the \d+ scored documents: its scores will look too good",
    ):
        scored(data, model, "test", seen)  # of a split that is made anew, and has others in it
    both = {**seen, "other": SeenTexts.of(corpus.test.texts)}
    assert list(scored(data, {**model, "other": {}}, seen=both)[2]) == ["one more"]


def test_nothing_left_is_an_error(data):
    seen = {"model": SeenTexts.of(TEXTS)}
    with pytest.raises(ValueError, match=r"model was trained or tuned on every document of papers: .*add --split all"):
        scored(data, {"model": {}}, seen=seen)


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
        assert list(scored(data, {"old": stored(then)})[2]) == list(then.test.texts)
        assert list(scored(data, {"new": stored(now)})[2]) == list(now.test.texts)


def test_how_labels_and_copies_were_read_is_remembered(data):
    data.write_text("".join(data.read_text().replace("label 1", name) for name in ("Label 1", "label 1")))
    corpus = load_corpus(data, seed=7, merge_case=True, drop_duplicates=True)
    assert sum(len(split) for _, split in corpus.splits()) == 120
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, _, texts, labels = scored(data, {"model": stored(corpus)})
    assert list(texts) == list(corpus.test.texts)
    assert set(labels.carried()) <= set(corpus.label_names)
    other = data.with_name("new.jsonl")
    other.write_text(data.read_text() + '{"text": "one more", "labels": ["LABEL 1"]}\n')
    _, _, texts, labels = scored(other, {"model": stored(corpus)})
    assert len(texts) == 241  # copies in other data are a person's own affair
    assert labels[240] == ("label 1",)


def test_an_encoding_is_remembered_for_the_same_file_alone(data):
    data.write_bytes(data.read_bytes().replace(b"label 1", b"\xe4"))
    corpus = load_corpus(data, encoding="latin-1")
    assert "ä" in corpus.label_names
    assert list(scored(data, {"model": stored(corpus)})[2]) == list(corpus.test.texts)
    other = data.with_name("new.jsonl")
    other.write_text('{"text": "ü", "labels": ["ä"]}\n', encoding="utf-8")
    _, _, texts, labels = scored(other, {"model": stored(corpus)})
    assert (list(texts), list(labels)) == (["ü"], [("ä",)])


def test_data_are_read_once(data, monkeypatch):
    from abalone.data import load

    reads, read_documents = [], load.read_documents
    monkeypatch.setattr(load, "read_documents", lambda *args, **kw: reads.append(args) or read_documents(*args, **kw))
    provenances = [stored(load_corpus(data, seed=seed)) for seed in (7, 7)]
    reads.clear()
    scored(data, dict(zip("ab", provenances, strict=True)))
    assert len(reads) == 1


def test_a_place_goes_with_a_known_corpus(data):
    with pytest.raises(ValueError, match=r"--path is only for known corpora, and .*papers\.jsonl is not one"):
        scored(data, {}, path=data.parent)
    assert len(scored("arxiv-sample", {})[2]) == len(load_corpus("arxiv-sample").test)

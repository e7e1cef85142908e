"""What browser tests share: a window, and a really fitted model."""

import json

import pytest
from browser import Browser

from abalone.classifier import AbaloneClassifier
from abalone.data.in_memory import label_lists
from abalone.data.load import load_corpus

DOCUMENTS = 400  # to fit on: enough to predict something sensible, few enough to take half a minute


@pytest.fixture
def browser(tmp_path_factory):
    """A fresh Chromium window."""
    window = Browser(tmp_path_factory.mktemp("chromium"))
    yield window
    window.close()


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A model folder of the packaged encoder with linear probes, and the file of what it was trained on."""
    place = tmp_path_factory.mktemp("fitted")
    corpus = load_corpus("arxiv-sample")
    texts = list(corpus.train.texts[:DOCUMENTS])
    labels = label_lists(corpus.train.labels[:DOCUMENTS], corpus.label_names)
    data = place / "papers.jsonl"
    data.write_text("\n".join(json.dumps({"text": t, "labels": y}) for t, y in zip(texts, labels, strict=True)))
    model = AbaloneClassifier("fast", lexical=False, max_length=96, device="cpu").fit(texts, labels)
    model.save_pretrained(place / "arxiv-papers")
    return place / "arxiv-papers", data

"""Our folder opened by others: plain `transformers` and plain `sentence-transformers`, on every architecture."""

import json
import logging

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy.special import expit
from transformers import AutoModelForSequenceClassification, pipeline

import architectures
import tiny
from abalone import AbaloneClassifier
from abalone.encoder.heads import LinearHead
from abalone.evaluation.decision import Decision, Mixture, Thresholds
from abalone.inference.folder import load, save
from abalone.inference.huggingface import RELU_HEADS, TANH_SCALE, opens_as_classifier, sequence_classifier

NAMES = ["w0", "Größe", "b/c", "[d]", "e"]
TEXTS, LABELS = tiny.corpus(120)
TEXTS[0] = " ".join(TEXTS[:8])  # longer than what is read


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    logging.getLogger("transformers").setLevel(logging.ERROR)


def fit(folder, kind="bert", **settings):
    encoder = architectures.save_encoder(folder / f"encoder-{kind}", kind)
    settings = {"pooling": "cls", "max_length": 20, "lexical": False, "folds": 0, "device": "cpu"} | settings
    classifier = AbaloneClassifier("fast", encoder=encoder, **settings).fit(TEXTS, LABELS, label_names=NAMES)
    classifier.predictor_.network.head.weight.mul_(
        3
    )  # an untrained encoder's documents are alike: make the answers differ
    return classifier


def pipeline_probabilities(folder, texts, names=NAMES):
    pipe = pipeline("text-classification", model=str(folder), top_k=None, device="cpu")
    rows = [{entry["label"]: entry["score"] for entry in row} for row in pipe(texts, truncation=True)]
    return np.array([[row[name] for name in names] for row in rows])


@pytest.mark.parametrize("kind", architectures.WITH_CLASSIFIER)
def test_a_pipeline_gives_our_probabilities(kind, tmp_path):
    classifier = fit(tmp_path, kind)
    classifier.save_pretrained(tmp_path / "model")
    expected = classifier.predict_proba(TEXTS)
    assert np.ptp(expected, axis=0).max() > 0.05  # or anything would pass
    # Entries that are lifted above 0 for a ReLU are as large as 11 and round by up to 4.8e-7; the weights of a label
    # add up to 125 here, and a sigmoid passes on a quarter of it: 1.5e-5, and as much again in the sums.
    atol = 3e-5 if kind in RELU_HEADS else 1e-5
    np.testing.assert_allclose(pipeline_probabilities(tmp_path / "model", TEXTS), expected, atol=atol)
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["problem_type"] == "multi_label_classification"
    assert [config["id2label"][str(number)] for number in range(5)] == NAMES
    again = AbaloneClassifier.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(TEXTS), expected)


@pytest.mark.parametrize("labels", [5, 40])  # fewer and more than the encoder is wide
def test_large_entries_and_logits_stay_in_tanhs_linear_range(labels, tmp_path):
    predictor = fit(tmp_path).predictor_
    norm = predictor.network.encoder.model.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight[3] = 30.0  # trained encoders have such entries, if hardly that large
    generator = torch.Generator().manual_seed(0)
    predictor.network.head = LinearHead(torch.randn(1, labels, 32, generator=generator), torch.zeros(1, labels))
    predictor.decision = Decision(Thresholds(np.full(labels, 0.5)))
    predictor.label_names = tuple(f"label {number}" for number in range(labels))
    logits = predictor.network.head.logits(predictor.embed(TEXTS))
    assert np.abs(predictor.embed(TEXTS)).max() > 10
    assert np.abs(logits).max() > 10
    save(predictor, tmp_path / "model")
    given = pipeline_probabilities(tmp_path / "model", TEXTS, predictor.label_names)
    np.testing.assert_allclose(given, expit(logits), atol=1e-5)


def test_a_half_precision_copy_still_works(tmp_path):
    classifier = fit(tmp_path)
    classifier.save_pretrained(tmp_path / "model")
    for dtype in (torch.bfloat16, torch.float16):
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", dtype=dtype)
        inputs = classifier.predictor_.network.tokenizer(TEXTS[1:9], padding=True, return_tensors="pt")
        with torch.no_grad():
            given = model(**inputs).logits.float().sigmoid().numpy()
        np.testing.assert_allclose(given, classifier.predict_proba(TEXTS[1:9]), atol=0.03)


@pytest.mark.parametrize("pooling", ["cls", "mean", "normalized_mean"])
@pytest.mark.parametrize("kind", ["bert", "mpnet", "electra"])
def test_sentence_transformers_gives_our_embeddings(kind, pooling, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    classifier = fit(tmp_path, kind, pooling=pooling)
    classifier.save_pretrained(tmp_path / "model")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS), classifier.encode(TEXTS), atol=1e-5)


def test_there_is_one_copy_of_the_weights(tmp_path):
    classifier = fit(tmp_path)
    classifier.save_pretrained(tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").rglob("*.safetensors")} == {
        "model.safetensors",
        "head.safetensors",
        "seen.safetensors",
    }
    with safe_open(tmp_path / "model" / "model.safetensors", "pt") as file:
        names = set(file.keys())
    encoder = {f"bert.{name}" for name in classifier.predictor_.network.encoder.model.state_dict()}
    assert names == encoder | {
        f"{layer}.{part}" for layer in ("bert.pooler.dense", "classifier") for part in ("weight", "bias")
    }
    assert sequence_classifier(classifier.predictor_).bert.embeddings.word_embeddings.weight.data_ptr() == (
        classifier.predictor_.network.encoder.model.embeddings.word_embeddings.weight.data_ptr()
    )


def test_read_and_saved_again_it_is_the_same_to_the_byte(tmp_path):
    fit(tmp_path).save_pretrained(tmp_path / "one")
    save(load(tmp_path / "one"), tmp_path / "two")
    for file in (path for path in (tmp_path / "one").rglob("*") if path.is_file()):
        assert file.read_bytes() == (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes(), file


def test_where_the_architecture_cannot_only_the_encoder_is_written(tmp_path):
    for predictor in (fit(tmp_path, "electra").predictor_, fit(tmp_path, "bert", pooling="mean").predictor_):
        assert not opens_as_classifier(predictor)
        save(predictor, tmp_path / "model")
        assert "the classifier, a linear layer in `head.safetensors`" in (tmp_path / "model" / "README.md").read_text()
        np.testing.assert_array_equal(load(tmp_path / "model").embed(TEXTS), predictor.embed(TEXTS))


def test_a_folder_of_before_still_loads(tmp_path):
    """Bare encoder weights, a tokenizer with its own length, a head of several layers, none of the others' files."""
    classifier = fit(tmp_path)
    predictor = classifier.predictor_
    predictor.network.head = type(predictor.network.head)(
        predictor.network.head.weight.repeat(3, 1, 1), predictor.network.head.bias.repeat(3, 1)
    )
    expected = classifier.predict_proba(TEXTS)
    classifier.save_pretrained(tmp_path / "model")
    predictor.network.encoder.model.save_pretrained(tmp_path / "model")
    predictor.network.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "modules.json").unlink()
    about = json.loads((tmp_path / "model" / "abalone.json").read_text())
    del about["tokenizer_max_length"]
    (tmp_path / "model" / "abalone.json").write_text(json.dumps(about))
    (tmp_path / "model" / "SHA256SUMS").unlink()  # nor were there any
    np.testing.assert_array_equal(AbaloneClassifier.from_pretrained(tmp_path / "model").predict_proba(TEXTS), expected)


def test_a_longer_reading_may_be_asked_of_a_folder(tmp_path):
    classifier = fit(tmp_path, max_length=8)
    classifier.save_pretrained(tmp_path / "model")
    longer = load(tmp_path / "model", max_length=40)
    assert longer.network.max_length == 40
    assert not np.allclose(longer.embed(TEXTS[:1]), classifier.encode(TEXTS[:1]))
    assert json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())["model_max_length"] == 8


def test_the_card_says_what_the_plain_folder_leaves_out(tmp_path):
    predictor = fit(tmp_path, max_chunks=2).predictor_
    object.__setattr__(predictor.decision, "mixture", Mixture({"lexical": 0.35, "neighbours": 0.0}))
    save(predictor, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "` as it is, and a linear layer, with the lexical expert at weight 0.35." in card
    assert "- the lexical expert, mixed in with weight 0.35" in card
    assert "- calibrated probabilities: the temperatures were fitted to the mixture" in card
    assert "neighbours expert" not in card
    assert "all but the first 20 tokens of a text, where ABALONE reads 2 times as many" in card
    for section in (
        "## Use",
        "## Intended use",
        "## Data",
        "## Scores on validation",
        "## Configuration",
        "## Citation",
    ):
        assert section in card
    assert "pipeline(" in card
    assert "max_chunks: 2" in card
    assert "macro-F1, rare third" in card


def test_the_scale_rounds_nothing():
    mantissa, _ = np.frexp(TANH_SCALE)
    assert mantissa == 0.5

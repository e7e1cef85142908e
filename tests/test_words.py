"""The recipe without an encoder, from a table to an answer; and training that ends there because words suffice."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from exported import run_without_torch

import judged
import tiny
from abalone import AbaloneClassifier
from abalone.data.load import load_corpus
from abalone.evaluation import mixing
from abalone.evaluation.decision import Mixture
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.mixing import fit_decision
from abalone.inference.card import LEFT_OUT, model_card
from abalone.inference.evidence import Evidence
from abalone.inference.export import export
from abalone.inference.folder import load, save
from abalone.inference.onnx_model import OnnxModel
from abalone.recipes import nearest_recipe, recipe
from abalone.training.label_names import with_names
from train_command import assert_refused, run

TEXTS = ["w0 w1 w9", "", "nothing that is known", "w2 w3 " * 30]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return tiny.workshop(tmp_path_factory.mktemp("words"), {"train": 90, "val": 40, "test": 40}, {})


@pytest.fixture(scope="module")
def model(workshop) -> Path:
    """What `abalone train --recipe words` has made."""
    done = run("train", workshop / "papers.jsonl", "-o", workshop / "model", "--recipe", "words", "--folds", "0")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("validation") == 1, "one row of scores: there is nothing to compare with"
    return workshop / "model"


@pytest.fixture(scope="module")
def onnx_file(model, workshop) -> Path:
    return export(load(model), workshop / "model.onnx").path


def test_it_is_the_lexical_expert_with_label_names_calibration_and_thresholds(model, workshop):
    corpus = load_corpus(workshop / "papers.jsonl")
    taught = with_names(corpus.train, corpus.label_names)
    expert = LexicalModel().fit(taught.texts, taught.labels)
    expert.calibrate(corpus.validation.texts, corpus.validation.labels)
    logits, frequencies = expert.scores(corpus.validation.texts), np.array(corpus.stats().frequencies)
    decision = fit_decision(logits, {}, corpus.validation.labels, frequencies, recipe())
    expected = decision.probabilities(expert.scores(corpus.test.texts), {})
    predictor = load(model)
    np.testing.assert_array_equal(predictor.probabilities(corpus.test.texts), expected)
    assert predictor.decision.to_dict() == decision.to_dict()


def test_the_folder_holds_no_encoder_and_says_so(model):
    assert {path.name for path in model.iterdir()} == {
        *("abalone.json", "lexical", "README.md", "seen.safetensors", "SHA256SUMS")
    }
    card = (model / "README.md").read_text()
    assert "tf-idf and a linear SVM for each label, without an encoder" in card
    assert "The recipe `words`. All settings" in card
    assert "transformers" not in card


def test_what_asks_an_encoder_is_refused(model, onnx_file):
    classifier = AbaloneClassifier.from_pretrained(model)
    assert classifier.recipe == "words"
    for asked in (classifier.encode, OnnxModel.load(onnx_file).embed):
        with pytest.raises(ValueError, match="without an encoder, so it has no embeddings"):
            asked(TEXTS[:1])
    with pytest.raises(ValueError, match="int8 is for the weights of an encoder, and this model has none"):
        export(load(model), onnx_file, int8=True)
    with pytest.raises(ValueError, match="is a finished model: its encoder cannot be changed to 'other'"):
        load(model, encoder="other")


def test_folder_and_file_answer_alike_without_torch_and_scikit_learn(model, onnx_file, workshop):
    expected = load(model).probabilities(TEXTS)
    onnx = OnnxModel.load(onnx_file)
    np.testing.assert_array_equal(onnx.probabilities(TEXTS), expected)
    assert onnx.probabilities([]).shape == (0, 5)
    told = [
        run_without_torch("predict", each, "--probabilities", stdin="".join(f"{text}\n" for text in TEXTS[:1]))
        for each in (model, onnx_file)
    ]
    told += [run_without_torch("evaluate", each, workshop / "papers.jsonl", "--json") for each in (model, onnx_file)]
    assert [(done.returncode, done.stderr) for done in told] == [(0, "")] * 4
    assert told[0].stdout == told[1].stdout
    assert told[2].stdout == told[3].stdout
    shown = json.loads(told[0].stdout)["probabilities"]
    assert [shown[name] for name in load(model).label_names] == pytest.approx(expected[0], abs=1e-6)


def test_evidence_is_found_by_shared_words(model, onnx_file):
    corpus = load_corpus(model.parent / "papers.jsonl")
    text = corpus.train.texts[3]
    for opened in (load(model), OnnxModel.load(onnx_file)):
        evidence = Evidence.of(corpus, opened.vectors, model)
        probabilities, vectors = opened.probabilities_and_vectors([text, "nothing known"])
        near, none = evidence.nearest(vectors, 3)
        assert (near[0].text, near[0].similarity) == (text, 1.0)
        assert near[0].similarity >= near[1].similarity >= near[2].similarity > 0
        assert none == [], "no training document shares a word with it"
        np.testing.assert_array_equal(probabilities, opened.probabilities([text, "nothing known"]))


def test_the_report_has_no_map_of_it(model, workshop, tmp_path):
    done = run("report", model, "--data", workshop / "papers.jsonl", "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert '"map":null,"clustering":null' in (tmp_path / "page.html").read_text()


def test_a_finished_run_is_not_run_again(model, workshop):
    before = (model / "abalone.json").stat().st_mtime_ns
    done = run("train", workshop / "papers.jsonl", "-o", model, "--recipe", "words", "--folds", "0", "--resume")
    assert "is finished already" in done.stderr
    assert (model / "abalone.json").stat().st_mtime_ns == before
    assert not model.with_name("model.training").exists()


def test_saved_again_it_is_the_same_to_the_byte(model, tmp_path):
    save(load(model), tmp_path / "again")
    files = [path.relative_to(model) for path in model.rglob("*") if path.is_file()]
    assert all((model / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder, about: shutil.rmtree(folder / "lexical"), "neither an encoder nor a tf-idf model"),
        (lambda folder, about: about["label_names"].pop(), "there are 4 label names, and thresholds for 5"),
        (lambda folder, about: about["decision"]["mixture"].update(lexical=0.5), "no encoder to mix experts with"),
        (lambda folder, about: about["config"].update(epochs=3), "without an encoder epochs must be 0, got 3"),
        (lambda folder, about: about["config"].update(encoder="other"), "damaged"),
    ],
)
def test_a_damaged_folder_is_told(damage, told, model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    about = json.loads((model / "abalone.json").read_text())
    damage(tmp_path / "model", about)
    (tmp_path / "model" / "abalone.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=told):
        load(tmp_path / "model")


def test_a_contradiction_is_told_before_anything_is_read(workshop):
    for options, got in ((["--encoder", "none"], "unset"), (["--recipe", "words", "--epochs", "5"], "5")):
        refused = run("train", "no-such-file.csv", "-o", workshop / "x", *options)
        assert_refused(refused, f"without an encoder epochs must be 0, got {got}", "recipe words")


@pytest.mark.filterwarnings("always:On validation the encoder adds nothing")
def test_training_ends_with_words_where_validation_gives_the_encoder_no_weight(workshop, tmp_path, monkeypatch):
    only_words = {"lexical": 1.0, "neighbours": 0.0}
    monkeypatch.setattr(
        mixing, "choose_weights", lambda _, experts, *__: Mixture({name: only_words[name] for name in experts})
    )
    settings = ["--config", workshop / "config.yaml", "--recipe", "rare", "--epochs", 1, "--max-length", 16]
    settings += ["--folds", 0]
    data = workshop / "papers.jsonl"
    done = run("train", data, "-o", tmp_path / "model", *settings)
    assert done.exit_code == 0, done.output
    assert "On validation the encoder adds nothing to words alone" in done.stderr
    assert "does not beat" not in done.stderr
    assert done.stdout.count("validation") == 1
    predictor = load(tmp_path / "model")
    assert predictor.backend is None
    assert nearest_recipe(predictor.config) == ("words", [])
    assert len(predictor.story["history"]["training"]) == 1, "what was tried is told"
    assert (
        f"validation gave the encoder `{workshop / 'encoder'}` no weight"
        in (tmp_path / "model" / "README.md").read_text()
    )
    run("train", data, "-o", tmp_path / "words", "--recipe", "words", "--folds", 0)
    np.testing.assert_array_equal(predictor.probabilities(TEXTS), load(tmp_path / "words").probabilities(TEXTS))
    assert "is finished already" in run("train", data, "-o", tmp_path / "model", *settings, "--resume").stderr


def test_it_trains_in_python_on_a_matrix():
    texts, labels = tiny.corpus(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = AbaloneClassifier(recipe="words", thresholds="micro").fit(texts, labels)
    assert classifier.predict(texts).shape == (60, 5)
    assert classifier.set_params(recipe="fast").encoder == "all-MiniLM-L6-v2"


def test_device_that_a_model_of_words_does_not_use_is_noted(model, workshop, tmp_path):
    told = "note: --device cuda is not used: a model without an encoder runs on the processor.\n"
    (tmp_path / "texts.txt").write_text(TEXTS[0])
    data = workshop / "papers.jsonl"
    for command in (
        ("predict", model, tmp_path / "texts.txt"),
        ("evaluate", model, data),
        ("report", model, "--data", data, "-o", tmp_path / "report.html"),
    ):
        assert run(*command, "--device", "cuda").stderr.count(told) == 1, command
        assert run(*command, "--device", "cpu").stderr.count("note: --device") == 0, command


def test_card_tells_what_gave_the_encoder_no_weight(model):
    predictor = load(model)
    predictor.story[LEFT_OUT] = "an-encoder"
    assert "; beside words, validation gave the encoder `an-encoder` no weight." in model_card(predictor)
    predictor.out_of_fold = judged.out_of_fold(*tiny.corpus(40))
    assert "; beside words, out-of-fold answers gave the encoder `an-encoder` no weight." in model_card(predictor)
    assert "validation gave" not in model_card(predictor)

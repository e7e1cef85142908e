"""`abalone export`: the file says what the model says, and nothing is written that does not."""

import copy
import json
import resource
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from exported import LABELS, NAMES, TEXTS, fit, run_without_torch
from typer.testing import CliRunner

import abalone.inference.export as exporting
import abalone.inference.quantization as quantization
from abalone.cli import app
from abalone.encoder.heads import LinearHead
from abalone.evaluation.decision import Mixture
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.inference.export import Network, export, graph_of
from abalone.inference.onnx_model import OnnxModel
from abalone.inference.quantization import saturating


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def graph(classifier):
    """The network of `classifier`; to make it is the slow part."""
    return graph_of(Network(classifier.predictor_))


@pytest.fixture
def quick(graph, monkeypatch):
    """`export` with the graph that is there already."""
    monkeypatch.setattr(exporting, "graph_of", lambda network: copy.deepcopy(graph))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", {"pooling": "cls"}),
        ("roberta", {"pooling": "mean"}),
        ("mpnet", {"pooling": "cls", "calibrate": False, "at_least_one": True}),
        ("distilbert", {"pooling": "mean", "max_chunks": 3, "max_length": 8}),
        ("bert", {"pooling": "normalized_mean", "max_chunks": 3, "max_length": 8}),
    ],
)
def test_it_answers_as_the_model_does(kind, settings, tmp_path):
    classifier = fit(tmp_path, kind, **settings)
    written = export(classifier.predictor_, tmp_path / "new" / "model.onnx")
    assert written.largest_difference < 1e-5
    assert written.bytes == written.path.stat().st_size
    model = OnnxModel.load(written.path, threads=1)
    texts = ["?", *TEXTS, " ".join(TEXTS[:10])]
    np.testing.assert_allclose(model.probabilities(texts), classifier.predict_proba(texts), atol=1e-5)
    np.testing.assert_allclose(model.embed(texts), classifier.encode(texts), atol=1e-5)
    for answering in (model, classifier.predictor_):
        probabilities, embeddings = answering.probabilities_and_vectors(texts)
        np.testing.assert_array_equal(probabilities, answering.probabilities(texts))
        np.testing.assert_array_equal(embeddings, answering.embed(texts))
    assert model.predict(texts) == classifier.predict(texts)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model.onnx"]


@pytest.fixture
def with_words(classifier, monkeypatch):
    """The same classifier with an expert for words mixed in."""
    predictor = classifier.predictor_
    monkeypatch.setattr(predictor, "lexical", LexicalModel().fit(TEXTS, LABELS).calibrate(TEXTS, LABELS))
    monkeypatch.setattr(predictor, "decision", replace(predictor.decision, mixture=Mixture({"lexical": 0.4})))
    return classifier


def test_the_expert_for_words_goes_along(quick, with_words, tmp_path):
    texts = ["?", *TEXTS, "none of these words", " ".join(TEXTS[:10])]
    written = export(with_words.predictor_, tmp_path / "model.onnx")
    assert written.largest_difference < 1e-5
    model = OnnxModel.load(written.path, threads=1)
    np.testing.assert_allclose(model.probabilities(texts), with_words.predict_proba(texts), atol=1e-5)
    assert model.predict(texts) == with_words.predict(texts)
    neural = replace(with_words.predictor_.decision, mixture=Mixture())  # that it is heard at all
    without = neural.probabilities(with_words.predictor_.network.head.logits(with_words.encode(texts)), {})
    assert np.abs(model.probabilities(texts) - without).max() > 0.1
    small = OnnxModel.load(export(with_words.predictor_, tmp_path / "int8.onnx", int8=True).path)
    assert 1e-6 < np.abs(small.probabilities(texts) - with_words.predict_proba(texts)).mean() < 0.03
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    done = run_without_torch("predict", written.path, tmp_path / "texts.txt")
    assert (done.returncode, done.stderr) == (0, "")
    given = [sorted(json.loads(line)["labels"]) for line in done.stdout.splitlines()]
    assert given == [sorted(labels) for labels in with_words.predict(TEXTS)]


def test_an_expert_that_weighs_nothing_stays_behind(quick, with_words, tmp_path, monkeypatch):
    predictor = with_words.predictor_
    heavy = export(predictor, tmp_path / "heavy.onnx").bytes
    monkeypatch.setattr(predictor, "decision", replace(predictor.decision, mixture=Mixture({"lexical": 0.0})))
    light = export(predictor, tmp_path / "light.onnx")
    assert light.bytes < heavy - sum(map(len, predictor.lexical.contents().values()))
    model = OnnxModel.load(light.path)
    assert model.lexical is None
    np.testing.assert_allclose(model.probabilities(TEXTS), with_words.predict_proba(TEXTS), atol=1e-5)


def test_eight_bits_are_smaller_and_nearly_as_exact(quick, classifier, tmp_path):
    folder, file = tmp_path / "model", tmp_path / "model.onnx"
    classifier.save_pretrained(folder)
    result = CliRunner().invoke(app, ["export", str(folder), "--output", str(file), "--int8"])
    assert result.exit_code == 0, result.output
    assert "on average" in result.stdout
    assert "× as fast as full precision on this processor" in result.stdout
    graph = onnx.load(file)
    assert {"MatMulInteger", "DynamicQuantizeLinear"} <= {node.op_type for node in graph.graph.node}
    assert saturating(graph) == []
    assert "head.weight" in {tensor.name for tensor in graph.graph.initializer}  # in full precision
    off = np.abs(OnnxModel.load(file).probabilities(TEXTS) - classifier.predict_proba(TEXTS))
    assert 1e-6 < off.mean() < 0.03
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]))
    done = run_without_torch("predict", file, tmp_path / "texts.txt")
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 3)


def test_eight_bits_that_depend_on_the_processor_are_refused(quick, classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(
        quantization, "_ranges", lambda weights: [{"axis": 1}]
    )  # all of the 8 bits, as the quantiser has it
    with pytest.raises(ValueError, match=r"nothing was written: 8-bit products of .* would be cut off on processors"):
        export(classifier.predictor_, tmp_path / "model.onnx", int8=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("speed", "told"), [(2.13, "2.1× as fast as full precision on this"), (0.9, "without --int8")])
def test_export_says_whether_eight_bits_pay(speed, told, quick, classifier, tmp_path, monkeypatch):
    classifier.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(exporting, "_speed", lambda *_: speed)
    arguments = ["export", str(tmp_path / "model"), "--output", str(tmp_path / "model.onnx"), "--int8"]
    shown = CliRunner().invoke(app, arguments).stdout
    assert told in shown
    assert ("without --int8" in shown) == (speed < 1.2)


def test_the_file_is_dynamic_and_tells_others_what_it_is(quick, classifier, tmp_path):
    model = onnx.load(export(classifier.predictor_, tmp_path / "model.onnx").path)
    onnx.checker.check_model(model)
    shapes = {x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
    assert shapes == {"input_ids": ["batch", "length"], "attention_mask": ["batch", "length"]}
    assert [x.name for x in model.graph.output] == ["logits", "embeddings"]
    stored = {entry.key: entry.value for entry in model.metadata_props}
    assert not any(node.metadata_props for node in model.graph.node)  # stack traces, with paths of this machine
    assert json.loads(stored["label_names"]) == NAMES
    assert json.loads(stored["thresholds"]) == classifier.predictor_.decision.thresholds.values.tolist()


def test_a_file_that_fails_its_check_is_not_put_in_place(quick, classifier, tmp_path, monkeypatch):
    file = tmp_path / "model.onnx"
    export(classifier.predictor_, file)
    before = file.read_bytes()
    monkeypatch.setattr(exporting, "TOLERANCE_FP32", -1.0)
    with pytest.raises(ValueError, match="nothing was written: probabilities from the ONNX file are off by"):
        export(classifier.predictor_, file)
    other = fit(tmp_path / "other", seed=5)
    other.predictor_.network.head.bias.add_(1)
    monkeypatch.setattr(exporting, "TOLERANCE_FP32", 1e-4)
    with pytest.raises(ValueError, match="nothing was written"):  # the graph is another model's
        export(other.predictor_, file)
    with pytest.raises(ValueError, match="loses too much in 8 bits"):
        export(other.predictor_, tmp_path / "new.onnx", int8=True)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "other"]


def test_a_full_disk_leaves_the_old_file(quick, classifier, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"the old one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            export(classifier.predictor_, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"the old one"]


def test_words_that_do_not_fit_beside_the_network(with_words, tmp_path, monkeypatch):
    predictor = with_words.predictor_
    weights = 4 * sum(weight.numel() for weight in predictor.network.encoder.model.parameters())
    monkeypatch.setattr(exporting, "LARGEST_FILE", weights + 100)
    with pytest.raises(ValueError, match="one ONNX file holds at most 2"):
        export(predictor, tmp_path / "model.onnx")


def test_what_cannot_be_done_is_said_at_once(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "graph_of", None)  # not reached
    predictor = classifier.predictor_
    with pytest.raises(ValueError, match=r"must end in \.onnx, got .*table\.csv"):
        export(predictor, tmp_path / "table.csv")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        export(predictor, tmp_path / "folder.onnx")
    monkeypatch.setattr(exporting, "LARGEST_FILE", 1000)
    with pytest.raises(ValueError, match="one ONNX file holds at most 2"):
        export(predictor, tmp_path / "model.onnx")
    several = LinearHead(
        predictor.network.head.weight[:1].repeat(2, 1, 1), predictor.network.head.bias[:1].repeat(2, 1)
    )
    with pytest.raises(ValueError, match="a head of several linear layers cannot be exported: train the model again"):
        export(replace(predictor, backend=replace(predictor.network, head=several)), tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[onnx\]'"):
        export(predictor, tmp_path / "model.onnx")


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("k", [7, 1000])  # more than there are documents
def test_neighbours_go_along(k, half, quick, with_words, tmp_path, monkeypatch):
    predictor = with_words.predictor_
    near = NearestNeighbours(k, fp16=half, device="cpu").fit(predictor.embed(TEXTS), LABELS)
    monkeypatch.setattr(predictor, "neighbours", near)
    mixed = replace(predictor.decision, mixture=Mixture({"lexical": 0.4, "neighbours": 0.5}))
    monkeypatch.setattr(predictor, "decision", mixed)
    texts = ["?", *TEXTS, "none of these words", " ".join(TEXTS[:10])]
    written = export(predictor, tmp_path / "model.onnx")
    assert written.largest_difference < 1e-5
    model = OnnxModel.load(written.path, threads=1)
    np.testing.assert_allclose(model.probabilities(texts), with_words.predict_proba(texts), atol=1e-5)
    told = run_without_torch("predict", written.path, "-", stdin="".join(f"{text}\n" for text in TEXTS[:3]))
    assert told.returncode == 0, told.stderr
    given = [sorted(json.loads(line)["labels"]) for line in told.stdout.splitlines()]
    assert given == [sorted(labels) for labels in with_words.predict(TEXTS[:3])]


def test_what_is_no_model_folder(tmp_path):
    result = CliRunner().invoke(app, ["export", str(tmp_path), "-o", str(tmp_path / "m.onnx")])
    assert result.exit_code == 2
    assert "is not a model folder" in result.stderr

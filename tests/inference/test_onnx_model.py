"""The ONNX file in a process where importing torch fails, and files that are something else."""

import hashlib
import json
import random
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from exported import LABELS, NAMES, TEXTS, fit, run_without_torch
from typer.testing import CliRunner

import tiny
from abalone.cli import app
from abalone.data import tokens
from abalone.data.in_memory import label_lists
from abalone.evaluation.decision import Mixture
from abalone.evaluation.lexical import LexicalModel
from abalone.inference import onnx_model as backend
from abalone.inference.export import export
from abalone.inference.onnx_model import (
    DIGITS,
    ENTRY,
    KEY,
    PROMISE,
    OnnxModel,
    has_checksum,
    lexical_as_text,
    with_checksum,
)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="module")
def file(classifier, tmp_path_factory):
    return export(classifier.predictor_, tmp_path_factory.mktemp("file") / "model.onnx").path


def answers(output):
    return [json.loads(line) for line in output.splitlines()]


def test_it_predicts_without_torch(file, classifier, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    done = run_without_torch("predict", file, tmp_path / "texts.txt", "--probabilities")
    assert (done.returncode, done.stderr) == (0, "")
    given = answers(done.stdout)
    probabilities = [[answer["probabilities"][name] for name in NAMES] for answer in given]
    np.testing.assert_allclose(probabilities, classifier.predict_proba(TEXTS), atol=1e-5)
    assert [sorted(answer["labels"]) for answer in given] == [sorted(row) for row in classifier.predict(TEXTS)]


def test_long_text_has_the_same_answer_and_is_tokenized_only_as_far_as_it_is_read(file, classifier, monkeypatch):
    """In both: what the tokenizer is given at once, and what is made of it."""
    model, given = OnnxModel.load(file), list[str]()
    long, beginning = " ".join([*TEXTS, "w1"] * 500), " ".join(TEXTS)
    encode = tokens.encode_in_pieces

    def watched(tokenizer, texts, most):
        class Watched:
            def encode_batch_fast(self, pieces, **options):
                given.extend(pieces)
                return tokenizer.encode_batch_fast(pieces, **options)

        return encode(Watched(), texts, most)

    for module in (tokens, backend):
        monkeypatch.setattr(module, "encode_in_pieces", watched)
    for answer in (model.probabilities, classifier.predict_proba):
        np.testing.assert_array_equal(answer([long]), answer([beginning]))
    assert len(given) == 4
    assert max(map(len, given)) < 1000 < len(long)


@pytest.mark.parametrize("split", [True, False])
def test_special_tokens_in_a_text_are_read_as_the_file_says(split, file):
    reading = replace(OnnxModel.load(file).backend.reading, split_special_tokens=split)
    (piece,), _ = reading.pieces(["w1 [SEP] w2"])
    inside = piece[len(reading.prefix) : len(piece) - len(reading.suffix)].tolist()
    assert (reading.suffix[0] in inside) == (not split)


def test_an_empty_text_is_refused_as_everywhere(file):
    with pytest.raises(ValueError, match="text 1 is empty"):
        OnnxModel.load(file).predict(["w1", " "])


def test_the_process_really_has_no_torch(classifier, tmp_path):
    """The test above would show nothing if torch could be imported there."""
    classifier.save_pretrained(tmp_path / "model")
    done = run_without_torch("predict", tmp_path / "model", stdin="w1\n")
    assert done.returncode != 0
    assert "error: this needs torch: run pip install . in a clone of ABALONE" in done.stderr


def test_streams_are_answered_too(file, classifier):
    done = run_without_torch("predict", file, "-", stdin=f'{TEXTS[0]}\n{{"text": "{TEXTS[1]}"}}\n')
    assert (done.returncode, done.stderr) == (0, "")
    assert [sorted(answer["labels"]) for answer in answers(done.stdout)] == [
        sorted(row) for row in classifier.predict(TEXTS[:2])
    ]


def test_evidence_is_found_without_torch(file, tmp_path):
    tiny.write_jsonl(tmp_path / "data.jsonl", TEXTS, label_lists(LABELS, NAMES), ["train"] * len(TEXTS))
    script = (
        "from pathlib import Path; from abalone.cli.serve import read_model;"
        "from abalone.serving.predictions import Query;"
        "served = read_model(Path(sys.argv[1]), sys.argv[2], None, 'cpu');"
        "print(served.answer([Query(sys.argv[3], 2)])[0].evidence[0])"
    )
    done = run_without_torch(file, tmp_path / "data.jsonl", TEXTS[0], script=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Document(text={TEXTS[0]!r}, "), done.stdout


def test_many_texts_come_back_in_order(file, classifier):
    model = OnnxModel.load(file, threads=1)
    texts = [TEXTS[number % len(TEXTS)] for number in range(backend.BLOCK + 100)]
    expected = classifier.predict_proba(TEXTS)[np.arange(len(texts)) % len(TEXTS)]
    np.testing.assert_allclose(model.probabilities(texts), expected, atol=1e-5)
    assert model.predict([]) == []
    assert model.probabilities([]).shape == (0, 5)
    assert model.embed([]).shape == (0, 32)
    assert [values.shape for values in model.probabilities_and_vectors([])] == [(0, 5), (0, 32)]


def run(*arguments):
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("error: ")
    return result.stderr


@pytest.mark.parametrize("content", [b"", b"some text", b"\x08\x07\x12\x04half", b"PK\x03\x04"])
def test_what_is_no_onnx_file(content, tmp_path):
    (tmp_path / "model.onnx").write_bytes(content)
    message = run(tmp_path / "model.onnx")
    assert f"{tmp_path / 'model.onnx'} is not an ONNX model" in message or "was not made by `abalone export`" in message


def test_half_of_a_file(file, tmp_path):
    content = file.read_bytes()
    (tmp_path / "half.onnx").write_bytes(content[: len(content) // 2])
    assert "half.onnx is not an ONNX model" in run(tmp_path / "half.onnx")


def test_every_flipped_bit_is_found(file, tmp_path):
    """A flipped bit in an exponent used to change answers, and nobody knew."""
    whole = file.read_bytes()
    end = [len(whole) - 1 - distance for distance in range(200)]  # the checksum, and what says that there is one
    anywhere = random.Random(0).sample(range(len(whole)), 60)
    promise = whole.index(b"checksum")
    for place in [0, *range(promise - 4, promise + 12), *anywhere, *end]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        (tmp_path / "damaged.onnx").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged\.onnx is (damaged|not an ONNX model)"):
            OnnxModel.load(tmp_path / "damaged.onnx")
    with pytest.raises(ValueError, match="the ONNX model is damaged: it is not what was written"):
        OnnxModel.load(whole[: -len(ENTRY) - DIGITS])  # a checksum that is cut off
    (tmp_path / "damaged.onnx").write_bytes(damaged)
    message = run(tmp_path / "damaged.onnx")
    assert "Copy it again, or export the model again" in message


def test_file_of_before_the_checksum_is_read_with_a_warning(file, tmp_path):
    model = onnx.load(file)
    stored = {entry.key: entry.value for entry in model.metadata_props if entry.key not in {KEY.decode(), *PROMISE}}
    onnx.helper.set_model_props(model, stored)
    onnx.save(model, tmp_path / "old.onnx")
    with pytest.warns(UserWarning, match="old.onnx was exported by an earlier version, without a checksum"):
        old = OnnxModel.load(tmp_path / "old.onnx")
    np.testing.assert_array_equal(old.probabilities(TEXTS), OnnxModel.load(file).probabilities(TEXTS))


def test_checksum_is_of_all_bytes_before_it(file):
    """As other programs can check it: `head -c -64 model.onnx | sha256sum`."""
    content = file.read_bytes()
    assert hashlib.sha256(content[:-64]).hexdigest().encode() == content[-64:]
    stored = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert stored["sha256"].encode() == content[-64:]


def test_a_checksum_is_found_however_little_is_before_it():
    assert has_checksum(with_checksum(b"\x00"), "it")
    assert has_checksum(with_checksum(b""), "it")
    assert not has_checksum(with_checksum(b"")[1:], "it")
    with pytest.raises(ValueError, match="it is damaged"):
        has_checksum(with_checksum(b"")[:-1] + b"-", "it")


def changed(file, target, **entries):
    """A file with other metadata, as whoever wrote it would have: with a checksum."""
    model = onnx.load(file)
    stored = {entry.key: entry.value for entry in model.metadata_props} | {KEY.decode(): None} | entries
    onnx.helper.set_model_props(model, {key: value for key, value in stored.items() if value is not None})
    target.write_bytes(with_checksum(model.SerializeToString()))
    return target


def test_an_onnx_file_of_somebody_else(file, tmp_path):
    foreign = changed(file, tmp_path / "foreign.onnx", abalone=None)
    assert "foreign.onnx was not made by `abalone export`" in run(foreign)
    newer = changed(file, tmp_path / "newer.onnx", abalone="2")
    assert "newer.onnx has format 2, and this version reads 1: export it again" in run(newer)
    for entries in (
        {"decision": None},
        {"reading": "{"},
        {"reading": '{"a": 1}'},
        {"reading": "[" * 5000},
        {"label_names": '["one"]'},
        {"label_names": "[1, 2, 3, 4, 5]"},
        {"decision": '{"thresholds": {"values": [0.5]}, "calibration": null, "mixture": {}, "at_least_one": false}'},
        {"story": '{"statistics": {"frequencies": [3, 2]}}'},
        {"story": '{"label_f1": [0.5, null]}'},
    ):
        damaged = changed(file, tmp_path / "damaged.onnx", **entries)
        assert "damaged.onnx is damaged" in run(damaged)


def test_damage_to_the_expert_for_words(classifier, tmp_path, monkeypatch):
    predictor = classifier.predictor_
    monkeypatch.setattr(predictor, "lexical", LexicalModel().fit(TEXTS, LABELS))
    monkeypatch.setattr(predictor, "decision", replace(predictor.decision, mixture=Mixture({"lexical": 0.5})))
    file = export(predictor, tmp_path / "model.onnx").path
    stored = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    fewer = LexicalModel().fit(TEXTS, LABELS[:, :2])
    for entries in (
        {"lexical.json": None},
        {"lexical.safetensors": None},
        {"lexical.json": None, "lexical.safetensors": None},
        {"lexical.json": "{}"},
        {"lexical.safetensors": "no base64!"},
        {"lexical.safetensors": stored["lexical.safetensors"][:400]},
        lexical_as_text(fewer),
    ):
        assert "damaged.onnx is damaged" in run(changed(file, tmp_path / "damaged.onnx", **entries))


def test_a_device_it_cannot_run_on(file):
    assert "an ONNX file runs on the processor, not on --device 'cuda'" in run(file, "--device", "cuda")


def test_without_onnxruntime(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install '.[onnx]'" in run(file)

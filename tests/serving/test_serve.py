"""`abalone serve` from end to end: a fitted model, a real process, signals."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import tiny
from abalone.classifier import AbaloneClassifier
from abalone.cli import app
from abalone.cli.serve import read_model
from abalone.data.in_memory import label_lists
from abalone.data.load import load_corpus
from abalone.errors import InputError
from abalone.inference.export import export
from abalone.serving.server import bind, own_hosts
from patience import PATIENCE

NAMES = ("zero", "one", "<b>two</b>", "three", "four")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model folder, the data it was trained on, and the model."""
    place = tmp_path_factory.mktemp("serve")
    texts, matrix = tiny.corpus(120)
    labels = label_lists(matrix, NAMES)
    splits = ["train"] * 100 + ["val"] * 20
    rows = [
        json.dumps({"text": text, "labels": given, "split": split})
        for text, given, split in zip(texts, labels, splits, strict=True)
    ]
    (place / "data.jsonl").write_text("\n".join(rows))
    encoder = tiny.save_encoder(place / "encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(place / "cache"))
        model = AbaloneClassifier(
            encoder=encoder, objective="bce", epochs=1, folds=0, lexical=False, max_length=32, device="cpu"
        )
        model.fit(texts, labels)
    model.save_pretrained(place / "model")
    return place, texts, model


def start(place, *options):
    """The process and its address."""
    command = [sys.executable, "-m", "abalone", "serve", str(place / "model"), "--port", "0", *options]
    environment = {**os.environ, "ABALONE_CACHE": str(place / "cache")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"at (http://\S+)", line):
            return process, found[1], said
    raise AssertionError(said)


def test_a_fitted_model_is_served_and_stops_in_order(fitted):
    place, texts, model = fitted
    process, address, said = start(place, "--evidence", str(place / "data.jsonl"), "--max-texts", "50")
    try:
        assert "model, 5 labels" in said
        answer = httpx.post(
            f"{address}/v1/predict", json={"texts": texts[:50], "top_k": 5, "evidence": 1}, timeout=PATIENCE
        )
        predictions = answer.json()["predictions"]
        expected = model.predict_proba(texts[:50])
        for prediction, text, row in zip(predictions, texts[:50], expected, strict=True):
            got = {label["name"]: label["probability"] for label in prediction["labels"]}
            np.testing.assert_allclose([got[name] for name in model.label_names], row, atol=2e-5)
            assert prediction["evidence"][0]["text"] == text  # a training document is nearest to itself
        given = httpx.post(f"{address}/v1/predict", json={"texts": texts[:50]}, timeout=PATIENCE).json()["predictions"]
        assert [{label["name"] for label in one["labels"]} for one in given] == [
            set(m) for m in model.predict(texts[:50])
        ]
        known = httpx.get(f"{address}/v1/labels").json()
        assert [label["name"] for label in known["labels"]] == list(model.label_names)
        assert all(label["documents"] > 0 for label in known["labels"])
        assert httpx.post(f"{address}/v1/predict", json={"texts": texts[:51]}).status_code == 422
        assert httpx.get(f"{address}/healthz", headers={"host": "elsewhere.example"}).status_code == 421
    finally:
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0
    assert rest == "stopped\n"


def test_requests_that_outlast_the_server_are_told_so():
    """One whose model does not answer and one that never arrived; neither is an error, and the process ends."""
    command = [sys.executable, str(Path(__file__).with_name("letters_server.py")), "stuck"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    found = next(found for line in process.stderr if (found := re.search(r"at http://(\S+):(\d+)", line)))
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
    )
    with (
        socket.create_connection((found[1], int(found[2])), timeout=PATIENCE) as waiting,
        socket.create_connection((found[1], int(found[2])), timeout=PATIENCE) as sending,
    ):
        sending.sendall(head + b'{"text')
        waiting.sendall(head + b'{"text": "a"}')
        while "abalone_requests_in_flight 3.0" not in httpx.get(f"http://{found[1]}:{found[2]}/metrics").text:
            pass  # the two, and this one
        process.send_signal(signal.SIGTERM)
        for line in (waiting, sending):
            answer = line.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"application/problem+json" in answer
            assert b"the server is stopping" in answer
    rest = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0
    assert rest == "stopped\n"


@pytest.mark.parametrize("host", ["a" * 64, "a..b"])
def test_name_that_no_host_can_have_is_refused(host):
    with pytest.raises(InputError, match="is no host name"):
        bind(host, 0)


def test_a_port_in_use_is_told_before_anything_is_read():
    with bind("127.0.0.1", 0) as taken:
        done = CliRunner().invoke(app, ["serve", "nowhere", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert "cannot serve at 127.0.0.1 port" in done.output
    assert "in use" in done.output


def test_a_folder_that_is_no_model_is_told(tmp_path):
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", "0"])
    assert done.exit_code == 2
    assert "is not a model folder" in done.output


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "abalone.serving.server")
    done = CliRunner().invoke(app, ["serve", str(tmp_path)])
    assert done.exit_code == 2
    assert "run pip install '.[serve]' in a clone of ABALONE" in done.output


def test_who_listens_to_this_machine_alone_knows_its_names():
    with bind("127.0.0.1", 0) as local, bind("0.0.0.0", 0) as public:
        assert {"localhost", "127.0.0.1", "[::1]"} <= set(own_hosts("127.0.0.1", local))
        assert own_hosts("0.0.0.0", public) is None


def test_an_onnx_file_is_served_without_torch():
    needed = "abalone.cli, abalone.serving.app, abalone.serving.server, abalone.inference.onnx_model"
    script = f"import sys, {needed}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_onnx_file_is_not_served_by_another_device(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "model.onnx"), "--port", "0", "--device", "cuda"])
    assert done.exit_code == 2
    assert "error: an ONNX file runs on the processor, not on --device 'cuda'" in done.stderr


def test_answers_do_not_wait_for_the_client_to_acknowledge_them():
    """On a connection that stays open, an answer in two parts would take 40 ms; the socket must send at once."""
    with bind("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_evidence_is_what_the_model_was_trained_on(tmp_path, monkeypatch):
    """The training part of data that were split with another seed than the usual one."""
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    texts, matrix = tiny.corpus(60)
    tiny.write_jsonl(tmp_path / "data.jsonl", texts, label_lists(matrix, NAMES), [None] * 60)
    corpus = load_corpus(tmp_path / "data.jsonl", seed=7)
    encoder = tiny.save_encoder(tmp_path / "encoder")
    settings = {"epochs": 0, "folds": 0, "lexical": False, "max_length": 32, "device": "cpu"}
    model = AbaloneClassifier(encoder=encoder, **settings).fit_corpus(corpus)
    model.save_pretrained(tmp_path / "model")
    export(model.predictor_, tmp_path / "model.onnx")
    for name in ("model", "model.onnx"):
        served = read_model(tmp_path / name, str(tmp_path / "data.jsonl"), None, "cpu")
        (near,) = served.evidence.nearest(model.encode(texts[:1]), len(served.evidence))
        assert {document.text for document in near} == set(corpus.train.texts)
        assert served.frequencies == corpus.train.labels.sum(axis=0).tolist()


def test_evidence_is_of_validation_documents_too_where_they_were_trained_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    texts, matrix = tiny.corpus(60)
    texts = [f"{text} {number}" for number, text in enumerate(texts)]
    tiny.write_jsonl(tmp_path / "data.jsonl", texts, label_lists(matrix, NAMES), [None] * 60)
    corpus = load_corpus(tmp_path / "data.jsonl")
    assert len(corpus.validation)
    model = AbaloneClassifier("words", folds=2).fit_corpus(corpus)
    model.save_pretrained(tmp_path / "model")
    export(model.predictor_, tmp_path / "model.onnx")
    for name in ("model", "model.onnx"):
        served = read_model(tmp_path / name, str(tmp_path / "data.jsonl"), None, "auto")
        assert len(served.evidence) == len(corpus.train) + len(corpus.validation)
        told = "note: evidence is training and validation documents: the model was trained on both.\n"
        assert capsys.readouterr().err == told

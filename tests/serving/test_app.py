import json
import logging
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from unittest.mock import Mock, call

import httpx
import pytest
from opentelemetry import trace
from running import LetterCounter, running, until

from abalone.inference.evidence import Evidence
from abalone.serving import batching
from abalone.serving.app import PAGE
from abalone.serving.limits import Limits
from abalone.serving.predictions import Served
from fuzz_server import Running
from patience import PATIENCE

LIMITS = Limits(body_bytes=2000, texts=4, characters=100, seconds=20)


@pytest.fixture(scope="module")
def client():
    with running(LetterCounter(), limits=LIMITS) as client:
        yield client


@pytest.fixture
def model():
    return LetterCounter()


def predict(client, **asked):
    return client.post("/v1/predict", json=asked)


def test_labels_that_reach_their_threshold_are_given(client):
    answer = predict(client, text="aabbb-----").json()
    assert answer == {
        "model": "letters",
        "predictions": [
            {
                "labels": [{"name": "b", "probability": 0.3, "threshold": 0.2, "given": True}],
                "evidence": None,
            }
        ],
    }


def test_many_texts_keep_their_order(client):
    answers = predict(client, texts=["aaa", "bbb", "---"]).json()["predictions"]
    assert [[label["name"] for label in answer["labels"]] for answer in answers] == [["a"], ["b"], []]


def test_top_k_gives_the_most_probable_and_says_which_are_given(client):
    (answer,) = predict(client, text="aaaccc----", top_k=2).json()["predictions"]
    assert answer["labels"] == [
        {"name": "a", "probability": 0.3, "threshold": 0.5, "given": False},
        {"name": "c", "probability": 0.3, "threshold": None, "given": False},
    ]
    assert len(predict(client, text="a", top_k=10**6).json()["predictions"][0]["labels"]) == 3


def test_labels_are_listed_with_what_is_known_of_them(model):
    with running(Served("letters", model, frequencies=[7, 5, 3], label_f1=[0.9, 0.2, None])) as client:
        answer = client.get("/v1/labels").json()
    assert answer["labels"][0] == {"name": "a", "threshold": 0.5, "documents": 7, "f1": 0.9}
    assert answer["labels"][2] == {"name": "c", "threshold": None, "documents": 3, "f1": None}
    assert answer["evidence"] is False


BAD = {
    "no JSON": (b"{", {}, 400, "not JSON"),
    "no body": (b"", {}, 400, "not JSON"),
    "not UTF-8": (b'{"text": "\xff"}', {}, 400, "not JSON"),
    "half a character": (b'{"text": "\\ud800"}', {}, 400, "hex escape"),
    "deep": (b"[" * 1500, {}, 400, "recursion"),
    "a list": (b"[]", {}, 422, "the body: "),
    "nothing asked": (b"{}", {}, 422, "either text"),
    "both": (b'{"text": "a", "texts": ["a"]}', {}, 422, "either text"),
    "no texts": (b'{"texts": []}', {}, 422, "texts is empty"),
    "a number": (b'{"text": 3}', {}, 422, "text: should be a valid string"),
    "a number among texts": (b'{"texts": ["a", null]}', {}, 422, "texts[1]: should be a valid string"),
    "empty": (b'{"text": " \\n"}', {}, 422, "text is empty"),
    "empty among texts": (b'{"texts": ["a", ""]}', {}, 422, "texts[1] is empty"),
    "NUL": (b'{"text": "a\\u0000"}', {}, 422, "NUL"),
    "too long": (json.dumps({"text": "x" * 101}).encode(), {}, 422, "at most 100"),
    "too many": (json.dumps({"texts": ["x"] * 5}).encode(), {}, 422, "at most 4"),
    "too large": (json.dumps({"text": "x" * 2000}).encode(), {}, 413, "at most 2,000 bytes"),
    "a typo": (b'{"txt": "a"}', {}, 422, "no field is called 'txt'"),
    "no labels": (b'{"text": "a", "top_k": 0}', {}, 422, "top_k: "),
    "true labels": (b'{"text": "a", "top_k": true}', {}, 422, "top_k: "),
    "no evidence here": (b'{"text": "a", "evidence": 1}', {}, 422, "--evidence"),
    "much evidence": (b'{"text": "a", "evidence": 21}', {}, 422, "at most 20"),
    "a form": (b"text=a", {"content-type": "application/x-www-form-urlencoded"}, 415, "application/json"),
    "plain text": (b'{"text": "a"}', {"content-type": "text/plain"}, 415, "application/json"),
    "another alphabet": (b'{"text": "a"}', {"content-type": "application/json; charset=latin-1"}, 415, "UTF-8"),
    "compressed": (b'{"text": "a"}', {"content-encoding": "gzip"}, 415, "compressed"),
}


@pytest.mark.parametrize(("content", "headers", "status", "reason"), BAD.values(), ids=BAD)
def test_bad_input_gets_a_reason(client, content, headers, status, reason):
    answer = client.post("/v1/predict", content=content, headers={"content-type": "application/json", **headers})
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert reason in answer.json()["detail"]


def test_a_body_of_unknown_length_is_cut_off(client):
    endless = (b" " * 1000 for _ in range(10))
    answer = client.post("/v1/predict", content=endless, headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(model):
    head = b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    with (
        running(model, limits=Limits(seconds=0.2)) as client,
        socket.create_connection((client.base_url.host, client.base_url.port)) as line,
    ):
        line.sendall(head)
        assert line.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/predict", 405),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/", 404),
    ],
)
def test_other_addresses_get_a_reason_too(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_a_query_that_is_no_text_is_refused_like_any():
    with closing(Running()) as application:
        status, _, answer = application.ask("GET", "/nowhere", b"\x85\xff", [], [])
    assert (status, json.loads(answer)["detail"][:25]) == (404, "there is nothing at /nowh")


def test_an_error_of_ours_shows_an_id_and_nothing_else(client, caplog):
    with caplog.at_level(logging.ERROR, "abalone.serving"):
        answer = predict(client, text="boom")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["instance"] in caplog.text
    assert "secret details" in caplog.text
    assert predict(client, text="a").status_code == 200


def test_a_panic_of_the_model_is_answered_and_the_next_request_too(model, caplog):
    with running(model) as client:
        answer = predict(client, text="panic")
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert answer.json()["instance"] in caplog.text
        assert "Panic: secret details" in caplog.text
        assert predict(client, text="a").status_code == 200
        assert client.get("/livez").status_code == client.get("/readyz").status_code == 200


def test_a_model_that_a_crash_left_broken_is_not_ready_until_it_recovers(model, monkeypatch):
    monkeypatch.setattr(batching, "RECHECK", 0.01)
    with running(model) as client:
        model.broken = True
        assert predict(client, text="a").status_code == 500
        for path in ("/livez", "/readyz", "/healthz"):
            until(lambda path=path: client.get(path).status_code == 503)
            assert "crashed" in client.get(path).json()["detail"]
        assert predict(client, text="a").status_code == 500
        model.broken = False
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/livez").json() == {"status": "ok"}


def test_a_model_that_hangs_is_not_ready_but_alive(model):
    model.may_go.clear()
    with running(model, limits=Limits(seconds=0.05)) as client:
        assert client.get("/readyz").status_code == 200
        predict(client, text="a")
        until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/livez").status_code == 200
        model.may_go.set()
        until(lambda: client.get("/readyz").status_code == 200)


def test_concurrent_requests_share_batches_and_get_their_own_answers(model):
    with running(model) as client, ThreadPoolExecutor(32) as pool:
        texts = ["a" * (i % 7 + 1) + "-" * (i % 5 + 1) for i in range(200)]
        answers = list(pool.map(lambda text: predict(client, text=text, top_k=1).json(), texts))
    shares = [answer["predictions"][0]["labels"][0]["probability"] for answer in answers]
    assert shares == [round(text.count("a") / len(text), 6) for text in texts]
    assert max(map(len, model.batches)) > 1


def test_a_full_queue_says_when_to_come_back(model):
    model.may_go.clear()
    with running(model, limits=LIMITS, room=1) as client, ThreadPoolExecutor(2) as pool:
        busy = pool.submit(predict, client, text="a")
        model.entered.wait(PATIENCE)
        waiting = pool.submit(predict, client, texts=["b"] * 4)
        until(lambda: "abalone_waiting_texts 4" in client.get("/metrics").text)
        refused = predict(client, text="c")
        model.may_go.set()
        assert refused.status_code == 503
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert busy.result().status_code == waiting.result().status_code == 200


def test_who_hangs_up_is_not_worked_for(model):
    model.may_go.clear()
    with running(model) as client, ThreadPoolExecutor(1) as pool:
        busy = pool.submit(predict, client, text="a")
        model.entered.wait(PATIENCE)
        with socket.create_connection((client.base_url.host, client.base_url.port)) as caller:
            head = "POST /v1/predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 16"
            caller.sendall(f'{head}\r\n\r\n{{"text": "gone"}}'.encode())
            until(lambda: "abalone_waiting_texts 1" in client.get("/metrics").text)
        until(lambda: "abalone_waiting_texts 0" in client.get("/metrics").text)
        model.may_go.set()
        assert busy.result().status_code == 200
        predict(client, text="b")
    assert model.batches == [["a"], ["b"]]


def test_a_model_that_hangs_does_not_hang_its_clients(model):
    model.may_go.clear()
    with running(model, limits=Limits(seconds=0.2)) as client:
        answer = predict(client, text="a")
        model.may_go.set()
    assert answer.status_code == 503
    assert "0.2 s" in answer.json()["detail"]


def test_health_and_metrics(client):
    assert client.get("/healthz").json() == {"status": "ok", "model": "letters"}
    predict(client, text="a")
    client.get("/made-up-by-a-stranger")
    text = client.get("/metrics").text
    assert re.search(r'abalone_requests_total\{path="/v1/predict",status="200"\} [1-9]', text)
    assert re.search(r'abalone_request_seconds_count\{path="/healthz"\} [1-9]', text)
    assert re.search(r"abalone_batch_texts_count [1-9]", text)
    assert "made-up" not in text


def test_a_server_for_this_machine_answers_to_its_own_name_only(model):
    with running(model, hosts=["127.0.0.1", "[::1]"]) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/healthz", headers={"host": "[::1]:8000"}).status_code == 200
        foreign = client.get("/healthz", headers={"host": "rebound.example"})
    assert foreign.status_code == 421
    assert foreign.json()["detail"]


def test_openapi_describes_the_request(client):
    described = client.get("/openapi.json").json()
    body = described["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"text", "texts", "top_k", "evidence"}
    assert {"200", "413", "415", "422", "503"} <= set(described["paths"]["/v1/predict"]["post"]["responses"])


def test_the_pages_bring_all_they_need(client):
    for path in ("/", "/docs"):
        page = client.get(path)
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for needed in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert client.get(f"/{needed.removeprefix('.')}").status_code == 200, needed
    for file in PAGE.iterdir():
        foreign = re.findall(r"https?://(?!www\.w3\.org/2000/svg|127\.0\.0\.1)", file.read_text(encoding="utf-8"))
        assert foreign == [], file.name
        assert "innerHTML" not in file.read_text(encoding="utf-8")


def test_evidence_is_given_to_who_asks_for_it(model):
    texts, labels = ["aaaa", "bbbb", "aabb"], [["a"], ["b"], ["a", "b"]]
    evidence = Evidence(texts, labels, model.vectors(texts))
    with running(Served("letters", model, evidence=evidence)) as client, ThreadPoolExecutor(3) as pool:
        model.may_go.clear()
        model.entered.clear()
        first = pool.submit(predict, client, text="c")
        model.entered.wait(PATIENCE)
        with_two = pool.submit(predict, client, text="aaab", evidence=2)
        with_one = pool.submit(predict, client, text="bbb", evidence=1)
        until(lambda: "abalone_waiting_texts 2" in client.get("/metrics").text)
        model.may_go.set()
        near = with_two.result().json()["predictions"][0]["evidence"]
        assert [(document["text"], document["labels"]) for document in near] == [("aaaa", ["a"]), ("aabb", ["a", "b"])]
        assert near[0]["similarity"] >= near[1]["similarity"]
        assert [document["text"] for document in with_one.result().json()["predictions"][0]["evidence"]] == ["bbbb"]
        assert first.result().json()["predictions"][0]["evidence"] is None
    read = [text for batch in model.batches for text in batch]
    assert sorted(read) == sorted([*texts, "c", "aaab", "bbb"])  # each once, whoever asks for evidence


def test_as_much_evidence_as_may_be_asked_for_is_given(model):
    texts = ["a" * length for length in range(1, 26)]
    evidence = Evidence(texts, [["a"]] * len(texts), model.vectors(texts))
    with running(Served("letters", model, evidence=evidence)) as client:
        (answer,) = predict(client, text="aa", evidence=20).json()["predictions"]
    assert len(answer["evidence"]) == 20


def test_stopping_answers_what_is_in_flight(model):
    model.may_go.clear()
    with ThreadPoolExecutor(1) as pool:
        with running(model) as client:
            busy = pool.submit(httpx.post, client.base_url.join("/v1/predict"), json={"text": "aaa"}, timeout=PATIENCE)
            model.entered.wait(PATIENCE)
            threading.Timer(0.3, model.may_go.set).start()
        assert busy.result().json()["predictions"][0]["labels"][0]["name"] == "a"


def test_a_prediction_is_a_span_without_its_texts(model, monkeypatch):
    tracer = Mock(wraps=trace.NoOpTracer())
    monkeypatch.setattr("abalone.serving.app.trace.get_tracer", lambda name: tracer)
    with running(model) as client:
        predict(client, texts=["secret", "b"])
    assert tracer.method_calls == [call.start_as_current_span("predict", attributes={"texts": 2})]

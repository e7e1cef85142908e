import io
import json
import logging
import re

import pytest
from running import LetterCounter, running, until

from abalone.serving import middleware

KEY = "correct-horse-battery"


@pytest.fixture(scope="module")
def client():
    with running(LetterCounter()) as client:
        yield client


@pytest.fixture(scope="module")
def locked():
    with running(LetterCounter(), key=KEY) as client:
        yield client


@pytest.fixture
def access(monkeypatch):
    """What the access log has."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    middleware.write_access_log()
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    middleware.access.handlers = []
    middleware.access.setLevel(logging.NOTSET)


@pytest.mark.parametrize("path", ["/", "/docs", "/static/page.js", "/v1/labels", "/livez", "/metrics", "/nowhere"])
def test_head_is_get_without_the_body(client, path):
    head, got = client.head(path), client.get(path)
    assert head.content == b""
    assert head.status_code == got.status_code
    assert head.headers["content-type"] == got.headers["content-type"]
    if path != "/metrics":  # which has changed since
        assert head.headers["content-length"] == got.headers["content-length"]


def test_head_of_what_cannot_be_got_is_refused(client):
    assert client.head("/v1/predict").status_code == 405


def test_a_sane_request_id_is_kept_and_others_are_replaced(client):
    assert client.get("/livez", headers={"x-request-id": "a-1:b/c.d=e"}).headers["x-request-id"] == "a-1:b/c.d=e"
    for bad in ("", "two words", "x" * 129, "ä".encode(), b"\xff", 'a"b', "a;b"):
        made = client.get("/nowhere", headers={"x-request-id": bad}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}", made)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_whether_the_server_is_well_needs_no_key(locked, path):
    assert locked.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/static/page.js", "/v1/labels", "/metrics", "/nowhere", "/livez/"])
def test_all_else_needs_the_key(locked, path):
    refused = locked.get(path)
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert "API key" in refused.json()["detail"]
    assert refused.headers["www-authenticate"].startswith("Basic ")
    assert locked.get(path, headers={"authorization": f"Bearer {KEY}"}).status_code != 401
    assert locked.get(path, auth=("anyone", KEY)).status_code != 401


@pytest.mark.parametrize(
    "given",
    ["", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer", "Bearer ä", f"Token {KEY}", "Basic", "Basic !!!",
     "Basic gA==", "Basic Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"],
)  # fmt: skip
def test_another_key_is_none(locked, given):
    assert locked.post("/v1/predict", headers={"authorization": given.encode()}, json={"text": "a"}).status_code == 401


def test_the_access_log_has_every_request_and_no_text(client, access):
    answer = client.post("/v1/predict?q=secret", json={"text": "secret words"}, headers={"x-request-id": "one"})
    client.get("/a%0Ab%1B")
    client.head("/docs")
    until(lambda: len(access()) == 3)  # the line follows the answer
    labelled, lost, asked = access()
    assert labelled["request_id"] == "one"
    assert (labelled["method"], labelled["path"], labelled["status"]) == ("POST", "/v1/predict", 200)
    assert labelled["client"] == "127.0.0.1"
    assert labelled["bytes"] == len(answer.content)
    assert labelled["seconds"] >= 0
    assert (lost["path"], lost["status"]) == (r"/a\nb\x1b", 404)
    assert (asked["method"], asked["bytes"]) == ("HEAD", 0)
    assert "secret" not in json.dumps([labelled, lost, asked])


def test_an_access_log_that_nobody_reads_does_not_stop_the_server(client, access, monkeypatch, caplog):
    monkeypatch.setattr(middleware.access.handlers[0], "stream", io.TextIOWrapper(io.BufferedReader(io.BytesIO())))
    for _ in range(3):
        assert client.get("/livez").status_code == 200
    until(lambda: "the access log ends" in caplog.text)
    assert caplog.text.count("the access log ends") == 1

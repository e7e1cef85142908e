"""Whatever is sent to `/v1/predict`, the answer is a result or a refusal with a reason."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import LetterCounter, running

from abalone.serving.limits import Limits

texts = st.text(st.characters(exclude_categories=()), max_size=60)  # halves of characters and NUL among them
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "text": texts | anything,
        "texts": st.lists(texts, max_size=6) | anything,
        "top_k": st.integers(-2, 10) | anything,
        "evidence": st.integers(-2, 3) | anything,
    },
)
bodies = st.one_of(st.binary(max_size=300), anything.map(json.dumps), near_misses.map(json.dumps))
kinds = st.sampled_from(["application/json"] * 8 + ["text/plain", "application/json; charset=utf-8", ""])


@pytest.fixture(scope="module")
def client():
    with running(LetterCounter(), limits=Limits(body_bytes=3000, texts=4, characters=50)) as client:
        yield client


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies, kind=kinds)
def test_any_bytes_get_a_result_or_a_reason(client, body, kind):
    content = body.encode() if isinstance(body, str) else body
    answer = client.post("/v1/predict", content=content, headers={"content-type": kind})
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
    if answer.status_code == 200:
        asked = json.loads(content)
        expected = 1 if asked.get("text") is not None else len(asked["texts"])
        assert len(answer.json()["predictions"]) == expected
    else:
        assert answer.json()["detail"]
        assert "Traceback" not in answer.text

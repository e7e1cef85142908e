"""The HTML page: one file that needs nothing else, in which texts stay texts."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import reported

from abalone.report.page import as_script_data, report_page, write_report
from abalone.report.runs import Documents

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "<img src=x onerror=alert(1)>",
    "]]> & &amp; \" ' ` ${1}",
    "lone \ud800 surrogate \udfff",
    "line \u2028 and paragraph \u2029 separators, nul \x00",
    "",
    "   ",
]


class Elements(HTMLParser):
    """Names, attributes and script contents of a page, as a browser would take it apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.title = ""
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        if self.inside == "title":
            self.title += data


def hostile_page():
    names = ["</script><b>", "<i>label</i>", "lone \udc80", "a & b"]
    run = reported.run("run </title><script>", documents=len(HOSTILE), labels=4, names=names)
    documents = reported.documents_of(run, HOSTILE)
    return report_page([run], documents), documents


def test_markup_in_texts_stays_text():
    page, _ = hostile_page()
    elements = Elements(page)
    assert [tag for tag, _ in elements.found].count("script") == 2
    assert not {"img", "b", "i"} & {tag for tag, _ in elements.found}
    data = json.loads(elements.scripts[0])
    assert data["documents"]["texts"][0] == HOSTILE[0]
    assert data["documents"]["texts"][4] == "lone \ufffd surrogate \ufffd"
    assert data["documents"]["texts"][6:] == ["", ""]
    assert data["labels"][0] == "</script><b>"
    assert elements.title == "run </title><script> · ABALONE report"
    assert not re.search(r"[<>&]|--!?>", elements.scripts[0])


def test_page_refers_to_nothing_outside():
    page, _ = hostile_page()
    elements = Elements(page)
    addresses = [value for _, attrs in elements.found for name, value in attrs.items() if name in ("src", "href")]
    assert all(address.startswith("data:") for address in addresses)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "@import" not in page


def test_policy_allows_only_the_pages_own_script_and_style():
    page, _ = hostile_page()
    elements = Elements(page)
    policy = next(a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    script = base64.b64encode(hashlib.sha256(elements.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{script}'" in policy
    assert "unsafe" not in policy
    assert not any(name == "style" or name.startswith("on") for _, attrs in elements.found for name in attrs)


def test_nan_is_null_and_numpy_is_plain():
    values = {"a": np.array([1.0, np.nan]), "b": np.float32(np.inf), "c": np.int64(3), "d": (0.123456789, True, None)}
    assert json.loads(as_script_data(values)) == {"a": [1, None], "b": None, "c": 3, "d": [0.123457, True, None]}


def test_1500_documents_stay_far_below_5_megabytes(monkeypatch):
    from abalone.report import payload

    monkeypatch.setattr(payload, "document_map", lambda embeddings: {"pca": np.random.default_rng(0).random((1500, 2))})
    run = reported.run(documents=1500, labels=50)
    long = ["word " * 2000] * 1500
    page = report_page([run], reported.documents_of(run, long))
    assert len(page.encode()) < 1_500_000


@pytest.mark.parametrize(
    ("texts", "labels", "told"),
    [([], [], "there are no documents to score"), (["a"], [], "1 texts but labels for 0")],
)
def test_documents_without_texts_or_labels_are_refused(texts, labels, told):
    with pytest.raises(ValueError, match=told):
        Documents("made up", "test", texts, labels)


def test_a_report_needs_a_model(tmp_path):
    with pytest.raises(ValueError, match="at least one model"):
        write_report({}, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())

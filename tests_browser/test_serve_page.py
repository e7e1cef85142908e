"""The page of `abalone serve`, as a person uses it."""

import json
import re
import signal

import httpx
import pytest
from browser import PATIENCE
from selenium.webdriver.common.keys import Keys
from servers import serving

import tiny
from abalone.classifier import AbaloneClassifier

TEXT = (
    "We study the sample complexity of training graph neural networks on sparse random graphs. Using tools from "
    "spectral graph theory and concentration of measure, we show that message passing with a logarithmic number of "
    "layers recovers the community structure, and that stochastic gradient descent converges to it. Experiments on "
    "citation networks and on protein interactions show gains for the rarest classes."
)
HOSTILE = "<img src=x onerror='window.hacked=1'>"


@pytest.fixture(scope="module")
def address(fitted, tmp_path_factory):
    model, data = fitted
    cache = tmp_path_factory.mktemp("cache")
    with serving(model, "--evidence", data, "--max-characters", 2000, cache=cache) as (_, address):
        yield address


def predict(browser, address, text=TEXT):
    browser.open(f"{address}/")
    browser.wait_for_text("#model", "labels")
    browser.find("#text").send_keys(text)
    browser.find("#predict").click()
    browser.find("#result")


def is_clean(browser, address):
    return browser.console_errors() == [] and browser.foreign_requests(f"{address}/") == []


def test_paste_predict_and_see_labels_against_thresholds_with_evidence(browser, address):
    predict(browser, address)
    asked = {"text": TEXT, "top_k": 1000, "evidence": 4}
    (truth,) = httpx.post(f"{address}/v1/predict", json=asked, timeout=PATIENCE).json()["predictions"]
    given = [label for label in truth["labels"] if label["given"]]
    assert given, "the model should be sure of something here"
    assert [name.text.splitlines()[0] for name in browser.find_all("#given .name")] == [one["name"] for one in given]
    assert len(browser.find_all("#below li")) == 5
    for row, label in zip(browser.find_all("#given li"), given, strict=True):
        track, fill, cut = (row.find_element("css selector", part).rect for part in (".track", ".fill", ".cut"))
        assert fill["width"] / track["width"] == pytest.approx(label["probability"], abs=0.01)
        assert (cut["x"] + 1 - track["x"]) / track["width"] == pytest.approx(label["threshold"], abs=0.01)
    shown = [snippet.get_attribute("textContent") for snippet in browser.find_all("#evidence .snippet")]
    assert shown == [document["text"] for document in truth["evidence"]]
    shared = {chip.text for chip in browser.find_all("#evidence .shared")}
    assert shared <= {label["name"] for label in given}

    browser.find("#more").click()
    assert len(browser.find_all(".labels li")) == len(truth["labels"])
    assert is_clean(browser, address)


def test_a_sample_is_made_of_label_names_and_predicted_and_labels_say_how_good_they_are(browser, address):
    browser.open(f"{address}/")
    browser.find("#sample").click()
    browser.find("#result")
    text = browser.find("#text").get_attribute("value")
    known = {label["name"]: label for label in httpx.get(f"{address}/v1/labels").json()["labels"]}
    assert sum(name.replace(".", " ").replace("-", " ") in text for name in known) >= 2
    assert "validation" in browser.find("#trust").text
    name, facts = browser.find(".labels .name").text.splitlines()
    assert facts.startswith(f"F1 {100 * known[name]['f1']:.0f}")
    assert "threshold " in browser.find(".labels .from").text
    assert is_clean(browser, address)


def test_it_looks_right_on_every_screen(browser, address):
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.resize(1280, 900)
        browser.open(f"{address}/")
        browser.wait_for_text("#model", "labels")
        browser.screenshot(f"serve-empty-{scheme}", whole_page=False)
        predict(browser, address)
        browser.screenshot("serve" if scheme == "light" else "serve-dark")
    for width in (1280, 800, 390):
        browser.resize(width, 844)
        assert browser.run("return document.documentElement.scrollWidth") <= width  # nothing sticks out
    browser.screenshot("serve-phone")
    browser.resize(1280, 900)
    browser.open(f"{address}/docs")
    assert address in browser.find("pre").text
    browser.screenshot("serve-docs")
    assert is_clean(browser, address)


def test_it_works_by_keyboard_and_for_screen_readers(browser, address):
    browser.open(f"{address}/")
    text = browser.driver.switch_to.active_element
    assert (text.get_attribute("id"), text.accessible_name) == ("text", "Text")
    text.send_keys(Keys.TAB)
    button = browser.driver.switch_to.active_element
    assert (button.aria_role, button.accessible_name) == ("button", "Predict")
    button.send_keys(Keys.ENTER)
    assert browser.find("#problem[role=alert]").text == "Paste a text first."
    assert browser.driver.switch_to.active_element.get_attribute("id") == "text"
    text.send_keys(TEXT[:200], Keys.CONTROL, Keys.ENTER)
    browser.wait_for_text("#status[role=status]", ".")
    assert browser.find_all("#problem:not([hidden])") == []
    assert is_clean(browser, address)


def test_too_long_a_text_is_told_before_it_is_sent(browser, address):
    browser.open(f"{address}/")
    browser.wait_for_text("#model", "labels")
    browser.run("document.getElementById('text').value = 'x'.repeat(2001)")
    browser.find("#predict").click()
    assert "at most 2,000 characters" in browser.find("#problem").text
    assert [request for request in browser.requests() if "predict" in request] == []


def test_labels_and_texts_are_shown_and_never_run(browser, tmp_path):
    texts, matrix = tiny.corpus(80)
    texts = [f"{text} {HOSTILE}" for text in texts]
    labels = [[f"{HOSTILE}{j}" for j in row.nonzero()[0]] for row in matrix.toarray()]
    rows = [json.dumps({"text": text, "labels": given}) for text, given in zip(texts, labels, strict=True)]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    encoder = tiny.save_encoder(tmp_path / "encoder")
    model = AbaloneClassifier(encoder=encoder, objective="bce", epochs=1, lexical=False, max_length=32, device="cpu")
    model.fit(texts, labels).save_pretrained(tmp_path / HOSTILE.replace("/", ""))
    folder = tmp_path / HOSTILE.replace("/", "")
    with serving(folder, "--evidence", tmp_path / "data.jsonl", cache=tmp_path / "cache") as (_, address):
        predict(browser, address, HOSTILE)
        assert HOSTILE in browser.find("#result").text
        assert HOSTILE in browser.find("#model").text
        assert HOSTILE in browser.find("#evidence").text
        assert browser.run("return window.hacked") is None
        assert browser.find_all("img[src=x]") == []
        assert is_clean(browser, address)


def test_a_server_that_has_gone_is_told(browser, fitted, tmp_path):
    with serving(fitted[0], cache=tmp_path) as (process, address):
        predict(browser, address)
        assert browser.find_all("#near:not([hidden])") == []  # it was started without evidence
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        browser.find("#predict").click()
        assert re.search("cannot be reached", browser.find("#problem").text)

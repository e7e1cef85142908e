"""The report in a real browser: it opens from disk, keeps to itself, and answers the pointer and the keyboard."""

import numpy as np
import pytest

import judged
import tiny
from abalone import AbaloneClassifier
from abalone.report.page import write_report
from abalone.report.runs import Documents

NAMES = ["<b>bold</b>", "quantum & gravity", "c", "</script><script>alert(1)</script>", "a rare label"]
TEXTS, LABELS = tiny.corpus(220)
# Each with words of its own, or the map would put them on the same spot.
HOSTILE = [f"{TEXTS[140]} </script><script>alert(1)</script>", f"{TEXTS[141]} <img src=x onerror=alert(1)>", ""]


def lists(labels):
    return [[NAMES[j] for j in np.flatnonzero(row)] for row in labels.toarray()]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    encoder = tiny.save_encoder(folder / "encoder")
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        for name, settings in {
            "<i>frozen</i> \ud800": {"epochs": 0},
            "msc": {"epochs": 2, "queue_size": 16},
            "bce": {"epochs": 2, "objective": "bce"},
        }.items():
            made[name] = AbaloneClassifier(
                "paper", encoder=encoder, max_length=20, thresholds="macro", device="cpu", **settings
            ).fit(TEXTS[:100], lists(LABELS[:100]), validation=(TEXTS[100:140], lists(LABELS[100:140])))
    return made


@pytest.fixture(scope="module")
def pages(models, tmp_path_factory):
    """One run, three runs, and what the folders hold by themselves, without and with out-of-fold answers."""
    folder = tmp_path_factory.mktemp("pages")
    texts = [*HOSTILE, *TEXTS[140 + len(HOSTILE) :]]
    documents = Documents("made up", "test", texts, lists(LABELS[140:]))
    write_report({"msc": models["msc"]}, folder / "one.html", documents)
    write_report(models, folder / "three.html", documents)
    write_report(models, folder / "bare.html")
    for seed, model in enumerate(models.values()):
        model.predictor_.out_of_fold = judged.out_of_fold(TEXTS[:140], LABELS[:140], seed=seed)
    write_report({"msc": models["msc"]}, folder / "judged.html")
    write_report(models, folder / "judged-three.html")
    known = Documents("made up", "out of fold", TEXTS[:140], lists(LABELS[:140]))
    write_report({"msc": models["msc"]}, folder / "known.html", known)
    return {path.stem: path.as_uri() for path in folder.iterdir()}


def open_page(browser, address):
    browser.prefer("light")  # and no motion: a page that still scrolls cannot be clicked
    browser.open(address)
    browser.find("footer")
    settle(browser)


def settle(browser):
    """Wait until what a change has set off, such as drawings and scroll events, is done."""
    browser.run("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def point_at(browser, css, x, y):
    """Move the pointer to a place in the first element of that selector, in shares of its size."""
    browser.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", css)
    settle(browser)
    browser.run(
        """const node = document.querySelector(arguments[0]);
        const box = node.getBoundingClientRect();
        node.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
            clientX: box.left + arguments[1] * box.width, clientY: box.top + arguments[2] * box.height}));""",
        css,
        x,
        y,
    )


def picture(browser):
    return browser.run("return document.querySelector('canvas').toDataURL()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("one", "curves tail thirds calibration map clustering confusion worst scores settings"),
        (
            "three",
            "comparison versus curves tail thirds calibration map clustering confusion worst scores settings",
        ),
        ("bare", "scores curves tail calibration settings"),
        ("judged", "curves tail thirds calibration confusion scores settings"),
        ("known", "curves tail thirds calibration map confusion worst scores settings"),
        ("judged-three", "comparison versus curves tail thirds calibration confusion scores settings"),
    ],
)
def test_it_opens_from_disk_and_keeps_to_itself(browser, pages, name, sections, width, scheme):
    browser.resize(width, 900)
    browser.prefer(scheme)
    browser.open(pages[name])
    browser.find("footer")
    assert browser.run("return [...document.querySelectorAll('section')].map(node => node.id)") == sections.split()
    settle(browser)
    charts = browser.run(
        "return [...document.querySelectorAll('.chart')].map(node => node.querySelectorAll('svg *').length)"
    )
    assert charts
    assert min(charts) > 5  # every figure was drawn
    assert browser.run("return document.documentElement.scrollWidth") <= width  # nothing hangs over the edge
    assert browser.run("return /NaN|undefined|Infinity/.test(document.querySelector('main').innerHTML)") is False
    assert browser.console_errors() == []
    assert browser.requests() == [pages[name]]


def test_out_of_fold_scores_are_named_as_such(browser, pages):
    open_page(browser, pages["judged"])
    head = browser.find("header").text
    assert "out of fold, 140 documents in 3 folds · 5 labels" in head
    assert "each training document was scored by a model that was not trained on it" in head
    assert "95 %:" in head
    assert "chosen out of fold" in browser.find("#thirds").text


def test_names_and_texts_are_shown_as_they_are(browser, pages):
    open_page(browser, pages["three"])
    assert browser.find("h1").text == "<i>frozen</i> \ufffd vs msc vs bce"
    browser.find("#tail summary").click()
    browser.wait_for_text("#tail table", "<b>bold</b>")
    assert browser.find_all("main b, main img, main i") == []
    assert len(browser.find_all("script")) == 2


def test_the_document_under_the_pointer_is_shown(browser, pages):
    open_page(browser, pages["one"])
    place = (
        "const [x, y] = JSON.parse(document.getElementById('data').textContent).runs[0].map.layouts.tsne[arguments[0]];"
    )
    for document, text in ((0, HOSTILE[0]), (1, HOSTILE[1]), (20, TEXTS[160])):
        # The canvas is as tall as the map needs; where a document lies on it follows from the layout.
        browser.run(
            place
            + """const canvas = document.querySelector("canvas");
            canvas.scrollIntoView({block: "center", behavior: "instant"});
            const box = canvas.getBoundingClientRect(), room = 14, scale = Math.floor(box.width) - 2 * room;
            canvas.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
                clientX: box.left + room + x * scale, clientY: box.top + box.height / 2 + (0.5 - y) * scale}));""",
            document,
        )
        browser.wait_for_text(".document", f"Document {document + 1}")
        assert text in browser.find(".document .text").text


def test_the_keyboard_goes_from_document_to_document(browser, pages):
    open_page(browser, pages["one"])
    press = "document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0]}))"
    browser.run(press, "ArrowRight")
    first = browser.find(".document h3").text
    browser.run(press, "ArrowLeft")
    assert browser.find(".document h3").text != first


def test_choosing_a_label_recolours_the_map(browser, pages):
    open_page(browser, pages["one"])
    before = picture(browser)
    choose = "const menu = arguments[0]; menu.value = arguments[1]; menu.dispatchEvent(new Event('change'))"
    browser.run(choose, browser.find("#map-colour"), "0")
    by_label = picture(browser)
    assert by_label != before
    assert "missed label" in browser.find("#map .legend").text
    browser.run(choose, browser.find("#map-colour"), "loss")
    assert picture(browser) not in (before, by_label)
    browser.run(choose, browser.find("#map select:not(#map-colour)"), "pca")
    assert picture(browser) != by_label


def test_the_pointer_over_the_long_tail_names_the_label(browser, pages):
    open_page(browser, pages["one"])
    point_at(browser, "#tail svg", 0.14, 0.2)
    browser.wait_for_text("#tip", "training documents")
    assert browser.run("return document.querySelector('#tip strong').textContent") in NAMES
    browser.run("document.querySelector('#tail svg').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.run("return document.querySelector('#tip').hidden") is True


def test_the_long_tail_names_its_labels_and_those_that_need_examples(browser, pages):
    open_page(browser, pages["one"])
    assert [name.text for name in browser.find_all("#tail text.label")][-1].startswith("a rare")
    assert "need" in browser.find("#tail figure + figure h3").text
    assert "in training" in browser.find("#tail figure + figure thead").text


def test_choosing_a_run_changes_what_single_figures_show(browser, pages):
    open_page(browser, pages["three"])
    before = browser.find("#thirds").text, picture(browser)
    browser.run("document.querySelectorAll('[name=run]')[2].click()")
    browser.wait_for_text("#map h2", "bce")
    assert browser.find("#thirds").text != before[0]
    assert picture(browser) != before[1]
    assert browser.console_errors() == []


def test_labels_can_be_sorted_and_found(browser, pages):
    open_page(browser, pages["one"])
    browser.find("#tail summary").click()
    names = "return [...document.querySelectorAll('#tail details tbody th')].map(node => node.textContent)"
    assert set(browser.run(names)) == set(NAMES)
    browser.run("[...document.querySelectorAll('#tail .sort')].find(node => node.textContent === 'label').click()")
    assert browser.run(names) == browser.run("return arguments[0].sort((a, b) => a.localeCompare(b))", NAMES)
    browser.find("#tail input[type=search]").send_keys("QUANTUM")
    assert browser.run(names) == ["quantum & gravity"]


def test_the_comparison_can_be_turned_round(browser, pages):
    open_page(browser, pages["three"])
    amounts = "return [...document.querySelectorAll('#comparison .amount')].map(node => node.textContent)"
    before = browser.run(amounts)
    choose = "const menu = arguments[0]; menu.value = '1'; menu.dispatchEvent(new Event('change'))"
    browser.run(choose, browser.find("#comparison select"))
    after = browser.run(amounts)
    assert len(after) == len(before) == 10  # five scores of two runs
    turned = [value.translate(str.maketrans("+−", "−+")) for value in before[0::2]]
    assert after[0::2] == turned

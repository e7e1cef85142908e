"""Photograph a page of `abalone report` for the documentation, in a headless Chromium.

    python examples/long_tail.py long-tail.html
    python tools/picture_report.py long-tail.html docs/images

The second run of the page is the one in front. Needs what `make test-browser` installs.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests_browser"))
from browser import Browser  # type: ignore[import-not-found]

WIDTH = 1180  # CSS pixels, in pictures of 1475 pixels
LABEL = "6"  # of the map
CHOOSE_LABEL = """
const choice = document.getElementById("map-colour");
choice.value = arguments[0];
choice.dispatchEvent(new Event("change"));
document.querySelector("canvas").scrollIntoView({block: "center"});
"""
POINT_AT_A_DOCUMENT = """
const page = JSON.parse(document.getElementById("data").textContent), run = page.runs[1], label = Number(arguments[0]);
const both = page.documents.truth.findIndex((t, row) => t.includes(label) && run.map.given[row].includes(label));
const [x, y] = run.map.layouts.tsne[both], canvas = document.querySelector("canvas");
const box = canvas.getBoundingClientRect(), scale = box.width - 28;
const place = {clientX: box.left + 14 + x * scale, clientY: box.top + box.height / 2 + (0.5 - y) * scale};
canvas.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, ...place}));
document.querySelector(".document").style.position = "static";
"""


def photograph(page: Path, folder: Path) -> None:
    """Write the pictures of docs/report.md and of the README."""
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        try:
            browser.resize(WIDTH, 900)
            browser.prefer("light")
            browser.open(page.resolve().as_uri())
            browser.find("#tail")
            browser.run("document.querySelectorAll('[name=run]')[1].click()")
            browser.run("document.querySelector('nav').style.position = 'static'")
            browser.photograph(folder / "report-comparison.png", "body", "#versus")
            browser.photograph(folder / "report-tail.png", "#tail", "#thirds")
            browser.photograph(folder / "report-documents.png", "#confusion", "#worst .worst > li:nth-child(2)")
            browser.prefer("dark")
            browser.run(CHOOSE_LABEL, LABEL)
            browser.run(POINT_AT_A_DOCUMENT, LABEL)
            browser.photograph(folder / "report-map.png", "#map", "#map")
        finally:
            browser.close()


if __name__ == "__main__":
    photograph(Path(sys.argv[1]), Path(sys.argv[2]))

"""Photograph a page of `abalone report` for the documentation, in a headless Chromium.

    python examples/long_tail.py long-tail.html
    python tools/picture_report.py long-tail.html docs/images

The second run of the page is the one in front. Needs what `make test-browser` installs.
"""

import sys
import tempfile
import time
from base64 import b64decode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests_browser"))
from browser import Browser  # type: ignore[import-not-found]

WIDTH, SCALE = 1180, 0.625  # CSS pixels, and pictures of 1475 pixels
LABEL = "6"  # of the map
BOUNDS = """
const edges = [arguments[0], arguments[1]].map((css) => document.querySelector(css).getBoundingClientRect());
return [edges[0].top + scrollY, edges[1].bottom + scrollY];
"""
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
            _take(browser, folder / "report-comparison.png", "body", "#versus")
            _take(browser, folder / "report-tail.png", "#tail", "#thirds")
            _take(browser, folder / "report-documents.png", "#confusion", "#worst .worst > li:nth-child(2)")
            browser.prefer("dark")
            browser.run(CHOOSE_LABEL, LABEL)
            browser.run(POINT_AT_A_DOCUMENT, LABEL)
            _take(browser, folder / "report-map.png", "#map", "#map")
        finally:
            browser.close()


def _take(browser: Browser, path: Path, first: str, last: str) -> None:
    """The page from one element to another."""
    time.sleep(0.6)  # what moves has come to rest
    top, bottom = browser.run(BOUNDS, first, last)
    clip = {"x": 0, "y": max(0, top), "width": WIDTH, "height": bottom + 14 - top, "scale": SCALE}
    asked = {"captureBeyondViewport": True, "clip": clip}
    path.write_bytes(b64decode(browser.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]))


if __name__ == "__main__":
    photograph(Path(sys.argv[1]), Path(sys.argv[2]))

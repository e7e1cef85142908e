"""Photograph the page of `abalone serve` for the documentation, in a headless Chromium.

    abalone train arxiv-sample --output arxiv-papers --recipe fast
    python tools/picture_serve.py arxiv-papers arxiv-sample docs/images/serve.png

Needs what `make test-browser` installs.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from abalone.files.cache import cache_dir

sys.path.insert(0, str(Path(__file__).parents[1] / "tests_browser"))
from browser import Browser  # type: ignore[import-not-found]
from servers import serving  # type: ignore[import-not-found]

WIDTH = 1180  # CSS pixels, in a picture of 1475 pixels
TEXT = (
    "We study the sample complexity of learning graph neural networks on sparse random graphs. Using tools from "
    "spectral graph theory and concentration of measure, we show that message passing with a logarithmic number of "
    "layers recovers community structure down to the Kesten–Stigum threshold. We complement the analysis with a "
    "semidefinite relaxation that matches the bound, and with experiments on citation networks and protein "
    "interaction data that show gains for the rarest classes."
)


def photograph(model: Path, data: str, picture: Path) -> None:
    """Write the picture of docs/serve.md."""
    with serving(model, "--evidence", data, cache=cache_dir()) as (_, address), TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        try:
            browser.resize(WIDTH, 900)
            browser.prefer("light")
            browser.open(address)
            browser.wait_for_text("#model", "labels")
            browser.find("#text").send_keys(TEXT)
            browser.find("#predict").click()
            browser.find("#result")
            browser.photograph(picture, "body", "#evidence > li:nth-child(2)")
        finally:
            browser.close()


if __name__ == "__main__":
    photograph(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))

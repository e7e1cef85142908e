"""A real headless Chromium that remembers what went wrong on the page and what it asked the network for."""

import json
import shutil
import time
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium refuses to run as root with one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # Chromium's own calls home; what is left in the log is then the page's doing.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
PATIENCE = 300.0  # seconds to wait for something to appear, which a busy machine does not take either
SCREENSHOTS = Path(__file__).parents[1] / "build" / "screenshots"
AT_REST = 0.6  # seconds, after which what moves on a page has come to rest
PICTURE_SCALE = 0.625  # of the two pixels a CSS pixel
COLOURS = 256  # of a picture: a third of the bytes, and no pixel of these pages is off by more than 15 of 255
BOUNDS = """
const edges = [arguments[0], arguments[1]].map((css) => document.querySelector(css).getBoundingClientRect());
return [edges[0].top + scrollY, edges[1].bottom + scrollY, innerWidth];
"""


class Browser:
    """One Chromium window.

    Args:
        profile: an empty folder for Chromium's own files.

    Attributes:
        driver: the Selenium driver, for everything that has no method here.
    """

    def __init__(self, profile: Path) -> None:
        options = ChromeOptions()
        options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Both programs are named, or Selenium would go and look for downloads.
        self.driver = Chrome(options=options, service=Service(_program("chromedriver")))
        self._console: list[dict[str, Any]] = []
        self._requests: list[str] = []
        self.open("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # what Chromium's own start page has left there
        self.resize(1280, 900)

    def open(self, address: str) -> None:
        """Go to an address (`http://…`, or `file://…` as `Path.as_uri()` gives it) and wait until it has loaded."""
        self.driver.get(address)

    def find(self, css: str) -> WebElement:
        """The first visible element of that CSS selector, waited for."""
        return self._wait(lambda: next((found for found in self.find_all(css) if found.is_displayed()), None), css)

    def find_all(self, css: str) -> list[WebElement]:
        """All elements of that CSS selector that are there now."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def wait_for_text(self, css: str, text: str) -> None:
        """Wait until the element of that CSS selector shows the text."""
        self._wait(lambda: text in " ".join(found.text for found in self.find_all(css)), f"{text!r} in {css}")

    def run(self, script: str, *arguments: object) -> Any:
        """What JavaScript returns; `arguments[0]` … are what was given."""
        return self.driver.execute_script(script, *arguments)

    def resize(self, width: int, height: int) -> None:
        """Give the page a viewport of this size in CSS pixels, at two device pixels each."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """Tell pages which colours the reader likes."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, name: str, *, whole_page: bool = True) -> Path:
        """Write `NAME.png` to `build/screenshots` for a person to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole_page})
        path = SCREENSHOTS / f"{name}.png"
        path.write_bytes(b64decode(taken["data"]))
        return path

    def photograph(self, path: Path, first: str, last: str) -> None:
        """Write a picture of the page from one element to another, for the documentation."""
        time.sleep(AT_REST)
        top, bottom, width = self.run(BOUNDS, first, last)
        clip = {"x": 0, "y": max(0, top), "width": width, "height": bottom + 14 - top, "scale": PICTURE_SCALE}
        asked = {"captureBeyondViewport": True, "clip": clip}
        taken = b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])
        picture = Image.open(BytesIO(taken)).convert("RGB")
        # Median cut, the default, forgets the small areas: it leaves steps in a gradient.
        few = picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
        few.save(path, optimize=True)

    def console_errors(self) -> list[str]:
        """Warnings and errors in the console since the window opened: scripts, resources, security policy."""
        self._console += self.driver.get_log("browser")
        return [entry["message"] for entry in self._console if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Every address that pages asked for since the window opened; what never leaves the browser is left out."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
            elif message["method"] == "Network.webSocketCreated":
                self._requests.append(message["params"]["url"])
        return [address for address in self._requests if not address.startswith(("data:", "blob:"))]

    def foreign_requests(self, own: str) -> list[str]:
        """The addresses that do not begin with `own`: for a page that should keep to itself, none."""
        return [address for address in self.requests() if not address.startswith(own)]

    def close(self) -> None:
        """Close the window and end both programs."""
        self.driver.quit()

    def _wait(self, condition: Any, what: str) -> Any:
        return WebDriverWait(self.driver, PATIENCE).until(lambda _: condition(), f"waited {PATIENCE:.0f} s for {what}")


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    raise RuntimeError(
        f"these tests need {names[0]}, which is not installed; `make test-browser` installs it on Debian and Ubuntu "
        "(apt-get install chromium chromium-driver)"
    )

"""Take the picture of the page to try a model that the documentation shows: docs/assets/console.png.

python scripts/screenshot.py

Keeps the picture that is there unless the page was changed after it, and if there is no browser.
"""

import subprocess
import sys
import time
from pathlib import Path

from support.browser import CHROMIUM, DRIVER, browsing
from support.stack import serving

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "console.png"
PAGE = ROOT / "src" / "tfs_proxy" / "model" / "console_page"
DIGITS = ROOT / "code_examples" / "digits"
WIDTH, HEIGHT = 1280, 1180
SECONDS = 30.0
"""For which requests are sent, so that the figures have a past."""

CLONE_SECONDS = 60.0
"""Within which a clone writes both the page and the picture, in any order."""


def main() -> None:
    """Take it, if it can be taken and is needed."""
    changed = max(file.stat().st_mtime for file in PAGE.iterdir())
    if PICTURE.exists() and changed < PICTURE.stat().st_mtime + CLONE_SECONDS:
        return
    if not (CHROMIUM and DRIVER):
        print("chromium and its driver are not installed: the picture of the page stays as it is")
        return
    subprocess.run([sys.executable, str(DIGITS / "train.py")], check=True)
    with serving(str(DIGITS / "build" / "model.tar.gz")) as stack, browsing() as browser:
        browser.look(WIDTH, HEIGHT)
        browser.visit(stack)
        image = min((DIGITS / "build" / "images").glob("*.png"))
        browser.drop("#drop", image)
        browser.wait(lambda: image.name in browser.text("#file-name"), "the file has been taken")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            browser.send()
        browser.wait(lambda: "model server" in browser.text("#stages"), "the page shows stages and figures")
        browser.driver.save_screenshot(str(PICTURE))


if __name__ == "__main__":
    main()

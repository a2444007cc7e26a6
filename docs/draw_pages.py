"""Draw pictures/serve.png and pictures/report.png, from what the demo wrote: needs Chromium.

``skh2edl demo && python docs/draw_pages.py skh2edl-demo``
"""

import io
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

PICTURES = Path(__file__).parent / "pictures"
SHOWN = "blur-3-px.png"  # the step at which the species is lost
WIDTH = 1200


@contextmanager
def browser(height):
    """Open Chromium with a window of this height."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    flags = ["--headless=new", "--hide-scrollbars", f"--window-size={WIDTH},{height}"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []
    for flag in flags:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def save(driver, name):
    """Take a picture of what the window shows."""
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(256).save(PICTURES / name, optimize=True)


def draw_page(url, photographs):
    """Use the page as a visitor would, and take a picture of it."""
    with browser(1400) as driver:
        driver.get(url)
        while not driver.find_elements(By.CSS_SELECTOR, "html[data-ready]"):
            time.sleep(0.1)
        driver.find_element(By.ID, "pick").send_keys("\n".join(map(str, photographs)))
        while "photographs classified" not in driver.find_element(By.ID, "progress").text:
            time.sleep(0.1)
        time.sleep(0.5)
        save(driver, "serve.png")


def draw_report(path):
    """Take a picture of the first screen of the report."""
    with browser(1120) as driver:
        driver.get(path.as_uri())
        save(driver, "report.png")


def main(folder):
    """Draw the report, and the page for as long as the picture takes."""
    draw_report(folder / "report.html")
    pictures = folder / "pictures"
    steps = [pictures / SHOWN, *sorted({*pictures.glob("[bs]*.png")} - {pictures / SHOWN})]
    photographs = [*steps, *sorted(pictures.glob("insect-*.png"))[:4]]
    code = "from skh2edl.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(folder / "insects.safetensors")]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            draw_page(re.search(r"http://\S+", server.stdout.readline()).group(), photographs)
        finally:
            server.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

"""Draw pictures/serve.png, the page of a model; needs Chromium and its driver.

``python docs/draw_serve.py MODEL.safetensors PHOTOGRAPH...``: the first one is shown.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

PICTURE = Path(__file__).parent / "pictures" / "serve.png"


def draw(url, photographs):
    """Use the page as a visitor would, and take a picture of it."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    flags = ["--headless=new", "--hide-scrollbars", "--window-size=1200,1500"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []
    for flag in flags:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(url)
        while not driver.find_elements(By.CSS_SELECTOR, "html[data-ready]"):
            time.sleep(0.1)
        driver.find_element(By.ID, "pick").send_keys("\n".join(map(str, photographs)))
        while "photograph" not in driver.find_element(By.ID, "progress").text:
            time.sleep(0.1)
        time.sleep(0.5)
        picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
        picture.quantize(256).save(PICTURE, optimize=True)
    finally:
        driver.quit()


def main(model, photographs):
    """Serve a model for as long as the picture takes."""
    command = [sys.executable, "-c", "from skh2edl.cli import main; main()"]
    with subprocess.Popen(
        [*command, "serve", model, "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            url = re.search(r"http://\S+", server.stdout.readline()).group()
            draw(url, [Path(name).resolve() for name in photographs])
        finally:
            server.terminate()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

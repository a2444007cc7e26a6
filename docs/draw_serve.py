"""Draw pictures/serve.png, the page of the demo's model; needs Chromium and its driver.

After ``skh2edl demo``: ``python docs/draw_serve.py skh2edl-demo``.
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
N_PHOTOGRAPHS = 5


def draw(url, photographs):
    """Use the page as a visitor would, and take a picture of it."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    flags = ["--headless=new", "--hide-scrollbars", "--window-size=1200,1280"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []
    for flag in flags:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(url)
        while not driver.find_elements(By.CSS_SELECTOR, "html[data-ready]"):
            time.sleep(0.1)
        driver.find_element(By.ID, "pick").send_keys("\n".join(map(str, photographs)))
        while "classified" not in driver.find_element(By.ID, "progress").text:
            time.sleep(0.1)
        time.sleep(0.5)
        # The prediction that leaves the most open shows the most.
        opened = driver.find_elements(By.CSS_SELECTOR, "#list .open")
        said = [button.find_element(By.CLASS_NAME, "said").text for button in opened]
        shares = [float((re.search(r"0\.\d+$", text) or ["1"])[0]) for text in said]
        opened[shares.index(min(shares))].click()
        picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
        picture.quantize(256).save(PICTURE, optimize=True)
    finally:
        driver.quit()


def main(folder):
    """Serve the model of the demo for as long as the picture takes."""
    command = [sys.executable, "-c", "from skh2edl.cli import main; main()"]
    model = folder / "insects.safetensors"
    with subprocess.Popen(
        [*command, "serve", str(model), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            url = re.search(r"http://\S+", server.stdout.readline()).group()
            draw(url, sorted((folder / "pictures").resolve().glob("*.png"))[:N_PHOTOGRAPHS])
        finally:
            server.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

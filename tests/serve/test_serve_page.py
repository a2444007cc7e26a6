"""The page in a browser: by mouse, by keyboard, on a phone, in the dark, with a large tree."""

import base64
import csv
import json
import os
import re
import shutil
import time
import urllib.request

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from serve_cases import HOSTILE, Running, large_app, picture, send, write_baseline, write_model

from skh2edl.serve import Limits, create_app

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)",
)


class Page:
    """What a person does with the page."""

    def __init__(self, driver, url):
        self.driver, self.url = driver, url
        driver.get(url)
        self.until(lambda: self.css("html[data-ready]"))

    def css(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def __getitem__(self, name):
        return self.driver.find_element(By.ID, name)

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds} s in vain"
            time.sleep(0.02)

    def send(self, *files):
        before = len(self.said())
        self["pick"].send_keys("\n".join(map(str, files)))
        self.until(lambda: len(self.said()) == before + len(files))
        self.until(lambda: not [text for text in self.said() if "…" in text])

    def said(self):
        return [element.text for element in self.css("#list .said")]

    def run(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def slide(self, value):
        self.run(
            "(s => { s.value = arguments[0]; s.dispatchEvent(new Event('input')) })"
            "(document.getElementById('slider'))",
            value,
        )

    def rows(self):
        """Visible rows of the tree."""
        return [row for row in self.css("#tree [role=treeitem]") if row.is_displayed()]

    def row(self, name):
        return next(r for r in self.rows() if r.get_attribute("aria-label").startswith(name + ","))

    def press(self, *keys):
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self):
        return (self.driver.switch_to.active_element.get_attribute("aria-label") or "").split(",")[
            0
        ]

    def ask(self, path, **query):
        text = "&".join(f"{name}={value}" for name, value in query.items())
        with urllib.request.urlopen(f"{self.url}{path}?{text}", timeout=60) as response:
            return json.load(response)

    def media(self, width=1200, height=900, dark=False):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    folder = tmp_path_factory.mktemp("browser")
    flags = [
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to run as root with it
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The path of the driver is given, so that selenium does not look for one to download.
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number, label in enumerate([("red", "pink"), "pink", HOSTILE]):
        (folder / f"{number}.png").write_bytes(picture(label, seed=70 + number))
    (folder / "notes.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = write_model(tmp_path_factory.mktemp("page") / "colours.safetensors")
    # Little memory: the server forgets a prediction when the next few come.
    with Running(create_app(path, limits=Limits(max_kept_mb=0.0055))) as url:
        yield url


@pytest.fixture
def page(driver, url):
    page = Page(driver, url)
    page.media()
    yield page
    # No error in the console, also none of the content security policy.
    serious = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert [entry for entry in serious if "404" not in entry["message"]] == []


@pytest.mark.slow
def test_a_photograph_is_classified_and_the_slider_makes_the_prediction_safer(page, photos):
    page.send(photos / "0.png")
    assert page["shown"].is_displayed()
    guarantees = page.ask("api/model")["hedge"]["guarantees"]
    content = (photos / "0.png").read_bytes()
    seen = []
    for place in [*range(0, len(guarantees), 10), len(guarantees) - 1]:
        page.slide(place)
        target = guarantees[place]["target_accuracy"]
        hedged = send(page.url, content, target_accuracy=target)["hedged"]
        sure = hedged["label"] if hedged["level"] != "nothing" else "Cannot tell"
        assert page["headline"].text == sure
        assert page.said()[0].startswith(sure)
        assert page["sure"].text == f"{100 * target:g} %"
        marked = [r for r in page.rows() if "the prediction" in r.get_attribute("aria-label")]
        assert [row.get_attribute("data-node") for row in marked] == [str(hedged["node"])]
        seen.append(sure)
    page.driver.find_element(By.CSS_SELECTOR, "input[value=threshold]").click()
    page.slide(0)
    assert page["headline"].text == send(page.url, content)["path"][-1]["label"]
    page.slide(99)
    assert page["sure"].text == "≥ 0.99"
    assert "No accuracy is guaranteed" in page["hedge-note"].text
    assert len({*seen, page["headline"].text}) >= 3


def test_no_prediction_stands_without_how_often_the_model_is_right(page, photos):
    page.send(photos / "0.png")
    held = page.ask("api/model")["held_out"]
    page.driver.find_element(By.CSS_SELECTOR, "input[value=threshold]").click()
    for least in (0, 45, 60, 99):
        page.slide(least)
        (path,) = [send(page.url, (photos / "0.png").read_bytes())["path"]]
        depth = max(n["depth"] for n in path if n["probability"] >= least / 100)
        stopped, right = held["stops"][least][depth]
        if depth:
            known = round(100 * held["n_right"][depth - 1] / held["n_images"])
            assert f"right for {known} % of 40 held-out photographs" in page["accuracy"].text
        if stopped:
            assert f"{right if depth else stopped} of {stopped if depth else 40}" in (
                page["accuracy"].text
            )
        current = page.css("#levels [aria-current=true] th")
        assert [cell.text for cell in current] == [n["title"] for n in path if n["depth"] == depth][
            : len(current)
        ]
        assert len(current) == (depth > 0)
        # Who does not see the headline hears it.
        assert page["slider"].get_attribute("aria-valuetext").endswith(page["headline"].text)
    page["slider"].send_keys(Keys.ARROW_LEFT)
    assert page["sure"].text == "≥ 0.98"


def test_photographs_of_two_subjects_are_warned_of(page, photos):
    page.send(photos / "1.png", photos / "2.png")
    for tick in page.css(".tick input"):
        tick.click()
    page["fuse"].click()
    page.until(lambda: page["conflict"].is_displayed())
    assert "contradict each other" in page["conflict"].text
    assert [row.text.split(" (belief ")[0] for row in page.css("#conflict li")] in (
        ["cold", "warm"],
        ["warm", "cold"],
    )
    page.css("#list .open")[0].click()
    assert not page["conflict"].is_displayed()


def test_the_page_speaks_of_classes_and_levels(page, photos):
    page.send(photos / "0.png", photos / "2.png")
    for place in range(0, 50, 7):
        page.slide(place)
        text = page.driver.find_element(By.TAG_NAME, "body").text
        assert not re.search(r"\b(root|leaf|leaves|read-out|nothing|1\.00)\b", text)


def test_numbers_that_look_alike_get_more_decimals_and_no_part_is_rounded_away(page):
    said = page.driver.execute_async_script(
        "const done = arguments[0]; import('/static/words.js').then(w => done("
        "[w.apart(0.9996, 0.9999), w.apart(0.4, 0.6), w.fraction(399, 400), w.fraction(1, 400),"
        " w.fraction(1, 8), w.fraction(0, 5)]))"
    )
    assert said == [["0.9996", "0.9999"], ["0.40", "0.60"], "over 99 %", "under 1 %", "13 %", "0 %"]


def test_names_are_text_and_never_markup(page, photos):
    page.send(photos / "2.png")
    page.slide(0)
    names = [row.text for row in page.css("#tree .text")]
    assert HOSTILE in names
    assert page.css("#tree img") == page.css("#found img") == []
    page["find"].send_keys("onerror")
    page.until(lambda: page["found"].is_displayed())
    assert HOSTILE in page["found"].text
    assert page.css("#found img") == []
    assert "owned" not in page.driver.title


def test_the_tree_is_walked_by_keyboard(page, photos):
    page.send(photos / "0.png")
    root = page.rows()[0]
    page.run("arguments[0].focus()", page["find"])
    page.press(Keys.TAB)
    assert page.focused() == "all classes"
    outline = page.run("getComputedStyle(arguments[0].firstElementChild).outlineStyle", root)
    assert outline == "solid"
    page.press(Keys.ARROW_DOWN)
    first = page.focused()
    assert first in ("warm", "cold")
    assert first in page["detail"].text
    assert "belief" in page["detail"].text
    page.press(Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert root.get_attribute("aria-expanded") == "false"
    assert len(page.rows()) == 1
    page.press(Keys.ARROW_RIGHT)
    assert root.get_attribute("aria-expanded") == "true"
    page.press(Keys.ARROW_RIGHT)
    assert page.focused() == first
    page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert page.focused() == "all classes"
    page.press(Keys.END)
    assert page.focused() == page.rows()[-1].get_attribute("aria-label").split(",")[0]
    page.press(Keys.HOME, "c")
    assert page.focused() == "cold"
    is_open = page.row("cold").get_attribute("aria-expanded")
    page.press(Keys.ENTER)
    page.until(lambda: page.row("cold").get_attribute("aria-expanded") != is_open)
    levels = {row.get_attribute("aria-level") for row in page.rows()}
    assert levels <= {"1", "2", "3", "4"}
    # One stop for the whole tree.
    assert len(page.css('#tree [tabindex="0"]')) == 1


def test_two_photographs_are_fused_even_after_the_server_forgot_them(page, photos):
    page.send(photos / "0.png", photos / "1.png")
    page.send(*[photos / "2.png"] * 6)
    assert not page["fuse"].is_enabled()
    for tick in page.css(".tick input")[:2]:
        tick.click()
    page["fuse"].click()
    page.until(lambda: len(page.said()) == 9)
    assert page["of"].text == "2 photographs fused: 0.png + 1.png"
    assert page.driver.switch_to.active_element == page["headline"]
    assert "not for fused ones" in page["withheld"].text
    assert not page["conflict"].is_displayed()
    assert len(page.css("#pictures .part")) == 2


def test_a_file_that_is_no_image_says_so_beside_the_others(page, photos):
    page.send(photos / "notes.png", photos / "0.png")
    assert "none of the formats" in page.said()[0]
    assert page["progress"].text == "1 photograph classified, 1 could not be used"
    assert page["of"].text == "0.png"
    page.css(".remove")[0].click()
    assert len(page.said()) == 1


DROP = """
const bytes = Uint8Array.from(atob(arguments[1]), c => c.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], "dropped.png", {type: "image/png"}));
const event = arguments[0] === "drop"
  ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
  : new ClipboardEvent("paste", {clipboardData: data, bubbles: true});
document.getElementById("drop").dispatchEvent(event);
"""


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_photographs_can_be_dropped_and_pasted(page, photos, how):
    content = base64.b64encode((photos / "2.png").read_bytes()).decode()
    page.driver.execute_script(DROP, how, content)
    page.until(lambda: page["shown"].is_displayed())
    assert page["of"].text == "dropped.png"
    page["clear"].click()
    assert page.said() == []
    assert page["empty"].is_displayed()


def test_all_predictions_are_downloaded_as_they_are_shown(page, photos, tmp_path):
    page.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    page.send(photos / "0.png", photos / "notes.png", photos / "2.png")
    page.slide(45)
    page["csv"].click()
    page["json"].click()
    page.until(
        lambda: {p.name for p in tmp_path.iterdir()} == {"predictions.csv", "predictions.json"}
    )
    page.until(lambda: (tmp_path / "predictions.json").stat().st_size > 0)
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    record = json.loads((tmp_path / "predictions.json").read_text(encoding="utf-8"))
    assert record["target_accuracy"] == 0.95
    assert record["threshold"] == 0.95
    assert [row["image"] for row in rows] == ["0.png", "notes.png", "2.png"]
    assert "none of the formats" in rows[1]["error"]
    assert rows[0]["error"] == ""
    for row, kept in zip(rows, record["predictions"], strict=True):
        finest = "finest_level_probability"
        assert float(row[finest] or 0) == (kept.get(finest) or 0)
    known = ["image", "images", "prediction", "prediction_level", "prediction_probability"]
    assert list(rows[0])[:5] == known
    assert {"level_1", "level_2_belief", "belief_stops_at_root"} <= rows[0].keys()
    for row, said in zip(rows, page.said(), strict=True):
        if not row["error"]:
            assert said.lower().startswith(row["prediction"].lower())
            assert row["prediction_path"].split("/")[-1:] != [row["prediction_level"]]


def test_on_a_phone_nothing_is_wider_than_the_screen(page, photos):
    page.media(width=360, height=740)
    page.send(photos / "2.png")
    assert page.run("document.documentElement.scrollWidth") == 360
    for name in ("drop", "hedge", "shown", "tools"):
        box = page[name].rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert page["shown"].rect["y"] < page["tools"].rect["y"]
    for row in page.rows()[:5]:
        assert row.find_element(By.CSS_SELECTOR, ".bar").rect["width"] > 60


def luminance(colour):
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_the_light_and_in_the_dark(page, photos, dark):
    page.media(dark=dark)
    page.send(photos / "0.png")
    behind = luminance(page.run("getComputedStyle(document.body).backgroundColor"))
    assert (behind < 0.1) is dark
    for selector in ("#headline", "#hedge-note", "#tree .number", "summary", "footer"):
        colour = page.run("getComputedStyle(document.querySelector(arguments[0])).color", selector)
        low, high = sorted([behind, luminance(colour)])
        assert (high + 0.05) / (low + 0.05) >= 4.5  # WCAG 2 AA


@pytest.mark.slow
def test_a_model_without_opinions_shows_probabilities_only(driver, photos, tmp_path):
    with Running(create_app(write_baseline(tmp_path / "flat.safetensors"))) as url:
        page = Page(driver, url)
        page.send(photos / "0.png", photos / "1.png")
        assert "belief" not in page["shown"].text
        assert not page["kinds"].is_displayed()
        assert "No accuracy is guaranteed" in page["hedge-note"].text
        assert "How often this model is right is not on record" in page["accuracy"].text
        page.slide(99)
        assert page["headline"].text in (
            "Cannot tell",
            "warm",
            "reds",
            "red",
            "pink",
        )
        for tick in page.css(".tick input"):
            tick.click()
        page["fuse"].click()
        page.until(lambda: len(page.said()) == 3)


def test_ten_thousand_leaves_are_opened_as_far_as_asked(driver, photos, monkeypatch):
    with Running(large_app(monkeypatch)) as url:
        page = Page(driver, url)
        page.send(photos / "0.png")
        assert "10,000 classes" in page["summary"].text
        n_rows = len(page.css("#tree [role=treeitem]"))
        assert 5 < n_rows < 60
        more = page.css("#tree li.more")[0]
        page.run("arguments[0].focus()", more)
        page.press(Keys.ENTER)
        page.until(lambda: len(page.css("#tree [role=treeitem]")) > n_rows)
        assert len(page.css("#tree [role=treeitem]")) <= n_rows + 25
        assert page.focused()
        page["find"].send_keys("species 19.49.9")
        page.until(lambda: page.css("#found li"))
        assert "in family 19 > genus 19.49" in page["found"].text

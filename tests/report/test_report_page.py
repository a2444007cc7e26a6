"""The page: safe, whole, the same bytes each time; in a browser it fits and can be searched."""

import base64
import hashlib
import os
import re
import shutil
from importlib.resources import files

import numpy as np
import pytest
from report_cases import HOSTILE, TREE, Page, evidential_report, hostile_report, report_of, words
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait
from sklearn.naive_bayes import GaussianNB

from skh2edl import Taxonomy
from skh2edl.report import write_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
in_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)",
)
SCRIPT = files("skh2edl.report").joinpath("templates/page.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hostile_page():
    return hostile_report().to_html()


def test_names_from_data_are_text_and_never_markup(hostile_page):
    page = Page(hostile_page)
    assert page.scripts == [SCRIPT]
    assert not [
        value for _, attributes in page.tags for value in attributes if value.startswith("on")
    ]
    assert sum(HOSTILE in text for text in page.texts) > 20
    assert len(page.of("style")) == 1


def test_the_page_needs_nothing_from_outside_and_runs_its_own_script_only(hostile_page):
    page = Page(hostile_page)
    for _, attributes in page.tags:
        for key in ("src", "href", "data", "action", "srcset"):
            assert attributes.get(key, "#").startswith(("#", "data:image/"))
    assert "url(" not in hostile_page
    assert "@import" not in hostile_page
    (policy,) = [each for each in page.of("meta") if "http-equiv" in each]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert policy["content"] == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )


def test_pictures_have_words_tables_have_captions_and_columns_have_headers(hostile_page):
    page = Page(hostile_page)
    assert len(page.of("img")) > 5
    assert all(len(image["alt"]) > 10 for image in page.of("img"))
    assert len(page.of("caption")) == len(page.of("table")) > 3
    heads = re.findall('<th scope="col">(.*?)</th>', hostile_page)
    assert len(heads) > 10
    assert all(re.sub("<[^>]+>", "", head).strip() for head in heads)
    assert page.of("html")[0]["lang"] == "en"
    links = {each["href"][1:] for each in page.of("a")}
    assert links <= {each.get("id") for _, each in page.tags}


def test_the_same_figures_give_the_same_bytes():
    assert evidential_report(TREE).to_html() == evidential_report(TREE).to_html()


def test_any_classifier_can_be_reported_on(tmp_path):
    rng = np.random.default_rng(0)
    y = np.tile(list(TREE.leaves), 60)
    X = rng.normal(size=(300, 5)) + 2 * np.tile(np.eye(5), (60, 1))
    bayes = GaussianNB().fit(X[:150], y[:150])
    report = write_report(tmp_path / "r.html", bayes, X[150:], y[150:], taxonomy=TREE)
    said = words((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert report.levels[1].n_right == int((bayes.predict(X[150:]) == y[150:]).sum())
    # Without opinions there is no vacuity and no depth.
    assert "vacuity" not in said.lower()
    assert "How far down" not in said


def test_a_report_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("before")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report_of({("lynx", "lynx"): 3}).write(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["r.html"]


def test_the_tree_shows_each_class_with_its_own_numbers_the_worst_first():
    counts = {("lynx", "lynx"): 6, ("lynx", "fox"): 2, ("fox", "fox"): 4, ("puma", "lynx"): 2}
    page = report_of(counts).to_html()
    rows = re.findall(r'class="name">([^<]+)</span>(.*?)</summary>', page)
    shown = [(name, *re.findall(r">([\d\s\xa0%]+)<", rest)) for name, rest in rows]
    # 8 of 10 cats are cats, all four dogs are dogs.
    assert shown == [
        ("All images", "14"),
        ("cat", "80\xa0%", "10"),
        ("puma", "0\xa0%", "2"),
        ("lynx", "75\xa0%", "8"),
        ("dog", "100\xa0%", "4"),
        ("fox", "100\xa0%", "4"),
    ]
    said = words(page)
    assert (
        "8 of 10 (80 %) of its images were predicted here. The others were taken for dog (2)."
        in said
    )
    assert "2 of 10 (20 %) went wrong between the classes below." in said
    assert "No evaluated image: moss." in said


def test_a_level_without_a_name_is_the_finest_and_no_leaf():
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    said = words(evidential_report(tree, 60).to_html())
    assert "finest level" in said
    assert not re.search(r"\b(root|leaf|leaves|read-out)\b", said)


def test_words_of_the_tables_lead_to_their_explanation(hostile_page):
    links = set(re.findall('class="word" href="#(.*?)"', hostile_page))
    assert {"word-ece", "word-95-interval", "word-threshold", "word-vacuity"} <= links
    assert links <= set(re.findall('<dt id="(.*?)">', hostile_page))


# In a browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    folder = tmp_path_factory.mktemp("browser")
    flags = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to run as root with it
    for flag in (*flags, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The path of the driver is given, so that selenium does not look for one to download.
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A report on four levels and 60 classes with long names, half of 240 images wrong or more."""
    paths = [
        (
            f"order {a}",
            f"family {a}{b}",
            f"genus-with-a-long-name-{a}{b}{c}",
            f"species {a}{b}{c}{d}",
        )
        for a in range(3)
        for b in range(2)
        for c in range(5)
        for d in range(2)
    ]
    tree = Taxonomy.from_paths(paths, level_names=("order", "family", "genus", "species"))
    path = tmp_path_factory.mktemp("report") / "report.html"
    evidential_report(tree, 240, title="A report with a title of some length").write(path)
    return path.as_uri()


@pytest.fixture
def show(driver, address):
    """Open the report on a screen; no error in the console, also none of the content policy."""

    def show(width, dark=False):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get("about:blank")  # a second visit of one address may return before it is loaded
        driver.get(address)
        state = "return document.readyState"
        WebDriverWait(driver, 60).until(lambda page: page.execute_script(state) == "complete")
        return driver

    yield show
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@in_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen_and_the_page_is_short(show, width):
    root = "return document.documentElement"
    driver = show(width)
    assert driver.execute_script(f"{root}.scrollWidth") <= width
    assert driver.execute_script(f"{root}.scrollHeight") <= 4000
    driver.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert driver.execute_script(f"{root}.scrollWidth") <= width


@in_browser
def test_the_contents_stay_in_sight(show):
    driver = show(1280)
    driver.find_element(By.LINK_TEXT, "Mistakes").click()
    top = "return document.{}.getBoundingClientRect().top"
    assert driver.execute_script(top.format("querySelector('nav')")) == pytest.approx(0, abs=1)
    # The heading is not hidden behind them.
    assert 20 < driver.execute_script(top.format("getElementById('h-mistakes')")) < 120


@in_browser
def test_on_a_phone_the_long_sections_open_by_their_heading_and_from_the_contents(show):
    shown = "return document.querySelector('{} .part > div').checkVisibility()"
    driver = show(1280)
    assert driver.execute_script(shown.format("#tree"))
    driver = show(390)
    assert not driver.execute_script(shown.format("#tree"))
    driver.find_element(By.ID, "h-tree").click()
    assert driver.execute_script(shown.format("#tree"))
    assert not driver.execute_script(shown.format("#mistakes"))
    driver.find_element(By.LINK_TEXT, "Mistakes").click()
    assert driver.execute_script(shown.format("#mistakes"))
    # A word of a table leads to its explanation, which two folds hide.
    word = "return document.getElementById('word-vacuity').checkVisibility()"
    assert not driver.execute_script(word)
    driver.execute_script("document.querySelector('a[href=\"#word-vacuity\"]').click()")
    assert driver.execute_script(word)


def wall(driver, what):
    """Return something of every mistake on the wall, in one call."""
    script = f"return [...document.querySelectorAll('#wall figure')].map(card => card.{what})"
    return driver.execute_script(script)


@in_browser
def test_mistakes_are_sorted_filtered_and_all_shown(show):
    driver = show(1280)
    sure = [float(value) for value in wall(driver, "dataset.sure")]
    assert sure == sorted(sure, reverse=True)
    Select(driver.find_element(By.ID, "order")).select_by_value("unsure")
    assert [float(value) for value in wall(driver, "dataset.sure")] == sure[::-1]
    Select(driver.find_element(By.ID, "level")).select_by_value("4")
    levels = wall(driver, "dataset.level")
    assert set(levels) == {"4"}
    assert driver.find_element(By.ID, "count").text == f"{len(levels)} of {len(sure)}"
    Select(driver.find_element(By.ID, "level")).select_by_value("")
    assert sum(wall(driver, "offsetParent !== null")) == 12
    driver.find_element(By.ID, "all").click()
    assert all(wall(driver, "offsetParent !== null"))
    driver.find_element(By.ID, "text").send_keys("species 0000")
    named = wall(driver, "textContent")
    assert 0 < len(named) < len(sure)
    assert all("species 0000" in each for each in named)


@in_browser
def test_a_class_of_the_tree_opens_and_shows_its_mistakes(show):
    driver = show(1280)
    top = driver.find_elements(By.CSS_SELECTOR, ".tree > .node > .below > .node")
    assert len(top) == 3
    summary = top[0].find_element(By.TAG_NAME, "summary")
    name = summary.find_element(By.CSS_SELECTOR, ".name").text
    summary.click()
    button = top[0].find_element(By.CSS_SELECTOR, "button")
    assert button.is_displayed()
    node = button.get_attribute("data-node")
    button.click()
    paths = wall(driver, "dataset.label")
    assert paths
    assert all(node in path.split() for path in paths)
    assert name in driver.find_element(By.ID, "under").text


@in_browser
@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_from_their_ground(show, dark):
    """Contrast of WCAG 2 level AA for small text, 4.5, also on the colours of the tree."""
    driver = show(1280, dark=dark)
    ratios = driver.execute_script(CONTRAST)
    assert len(ratios) > 20
    assert min(ratios) >= 4.5


# Colours are painted on a canvas, because a mixed one is no rgb() in the computed style.
CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const paint = (...colours) => {
  colours.forEach((colour) => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); });
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (rgb) => {
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const [r, g, b] = rgb.map((v) => linear(v / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
document.querySelectorAll(".tree details").forEach((each) => { each.open = true; });
const paper = getComputedStyle(document.body).backgroundColor;
return [...document.querySelectorAll(".chip, .soft, .note, .good, .care, .bad, a, .own, summary")]
  .map((each) => {
    const style = getComputedStyle(each);
    const [a, b] = [light(paint(paper, style.backgroundColor, style.color)),
      light(paint(paper, style.backgroundColor))].sort((x, y) => y - x);
    return (a + .05) / (b + .05);
  });
"""

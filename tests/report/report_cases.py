"""Small trees, reports on counted predictions, and a reader of pages."""

import re
from html import unescape
from html.parser import HTMLParser

import numpy as np

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.report import EvaluationReport

TREE = Taxonomy.from_paths(
    [("cat", "lynx"), ("cat", "puma"), ("dog", "fox"), ("dog", "wolf"), ("moss",)],
    level_names=("kind", "species"),
)
HOSTILE = '<script>alert(1)</script>"\' onload="x'


def proba_of(predicted, *, tree=TREE, sure=0.7):
    """Probabilities whose best leaf is the one named, the rest spread equally."""
    classes = list(tree.sorted_leaf_labels)
    proba = np.full((len(predicted), len(classes)), (1 - sure) / (len(classes) - 1))
    proba[np.arange(len(predicted)), [classes.index(leaf) for leaf in predicted]] = sure
    return proba


def report_of(counts, *, tree=TREE, sure=0.7, **options):
    """A report on predictions given as {(label, predicted leaf): how many}."""
    truth = [label for (label, _), number in counts.items() for _ in range(number)]
    given = [leaf for (_, leaf), number in counts.items() for _ in range(number)]
    return EvaluationReport.from_predictions(
        truth, proba_of(given, tree=tree, sure=sure), tree, **options
    )


def evidential_report(tree, n_samples=40, **options):
    """A report on opinions drawn at random, with pictures."""
    rng = np.random.default_rng(0)
    evidence = rng.gamma(0.5, 8.0, size=(n_samples, tree.n_decisions))
    opinion = HyperOpinion.from_evidence(tree, evidence)
    return EvaluationReport.from_predictions(
        [tree.leaves[index % tree.n_leaves] for index in range(n_samples)],
        opinion.leaf_probability[:, tree.leaf_order],
        tree,
        opinion=opinion,
        images=rng.integers(0, 255, size=(n_samples, 9, 9), dtype=np.uint8),
        **options,
    )


def hostile_report():
    """A report whose every name tries to be markup."""
    tree = Taxonomy.from_nested(
        {HOSTILE: [f"a{HOSTILE}", f"b{HOSTILE}"], "</style>": None},
        level_names=(HOSTILE, f"leaf{HOSTILE}"),
    )
    return evidential_report(
        tree,
        names=[f"{index}{HOSTILE}" for index in range(40)],
        title=HOSTILE,
        facts={HOSTILE: HOSTILE},
        calibration=np.zeros(60),
        calibration_note=HOSTILE,
    )


def words(page):
    """The text of a page, tags taken out."""
    page = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


class Page(HTMLParser):
    """Collects what a page is made of, and checks that what opens is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.scripts = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, text):
        if "script" in self.open:
            self.scripts.append(text)
        elif "style" not in self.open:
            self.texts.append(text)

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

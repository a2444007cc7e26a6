"""skh2edl opinions: a table of scores in, a table of opinions out."""

import csv

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.frozen import FrozenEstimator
from typer.testing import CliRunner

from skh2edl import OpinionClassifier, ScoreTable, Taxonomy
from skh2edl.cli import opinions as command
from skh2edl.cli.app import app

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
COLUMNS = ["wolf", "puma", "lynx", "fox"]


def scores(n_samples, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(TREE.leaves, n_samples)
    logits = rng.normal(size=(n_samples, 4)) * 1.5
    logits[np.arange(n_samples), [COLUMNS.index(label) for label in labels]] += 2
    return logits, labels


def write(path, values, **columns):
    frame = pd.DataFrame(values, columns=COLUMNS)
    frame.assign(**columns).to_csv(path, index=False)
    return path


@pytest.fixture
def tree(tmp_path):
    path = tmp_path / "ranks.csv"
    path.write_text("family,kind\ncat,lynx\ncat,puma\ndog,fox\ndog,wolf\n")
    return path


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["opinions", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_opinions_are_those_of_a_fit_on_the_calibration_table(tmp_path, tree):
    held, labels = scores(200)
    new, _ = scores(20, seed=1)
    calibration = write(tmp_path / "held.csv", held, label=labels)
    table = write(tmp_path / "new.csv", new, image=[f"{row}.jpg" for row in range(20)])
    out = tmp_path / "out.csv"
    said = run(table, "--taxonomy", tree, "--calibration", calibration, "--out", out)
    assert "taken for logits: some are below 0 or above 1" in said
    frozen = FrozenEstimator(ScoreTable(COLUMNS, "logits").fit(held))
    opinion = OpinionClassifier(frozen, TREE).fit(held, labels).predict_hyper_opinion(new)
    rows = read(out)
    assert [row["image"] for row in rows] == [f"{row}.jpg" for row in range(20)]
    nodes = opinion.nodes(["root", "cat", "dog"])
    for number, row in enumerate(rows):
        numbers = opinion[number].nodes([row["family"]])
        assert float(row["family_belief"]) == pytest.approx(numbers.belief[0, 0], abs=1e-5)
        assert float(row["family_plausibility"]) == pytest.approx(
            numbers.plausibility[0, 0], abs=1e-5
        )
        assert float(row["belief_stops_at_root"]) == pytest.approx(nodes.mass[number, 0], abs=1e-5)
        below = opinion[number].nodes(list(TREE.leaves)).belief[0]
        if row["prediction"] != "cannot tell":
            assert opinion[number].nodes([row["prediction"]]).belief[0, 0] > 0.5
        assert (below > 0.5).any() == (row["prediction"] in TREE.leaves)


def test_labelled_rows_get_opinions_of_fits_on_others(tmp_path, tree):
    values, labels = scores(150)
    labels[::5] = ""
    probabilities = softmax(values, axis=1)
    table = write(tmp_path / "scores.csv", probabilities, kind=labels)
    out = tmp_path / "out.jsonl"
    said = run(table, "--taxonomy", tree, "--labels", "kind", "--out", out)
    assert "taken for probabilities: from 0 to 1" in said
    frame = pd.read_json(out, lines=True)
    assert frame["row"].tolist()[:2] == ["row 2", "row 3"]
    known = labels != ""
    frozen = FrozenEstimator(ScoreTable(COLUMNS).fit(probabilities))
    clf = OpinionClassifier(frozen, TREE).fit(probabilities[known], labels[known])
    of_all = clf.predict_hyper_opinion(probabilities).nonspecificity
    np.testing.assert_allclose(frame.nonspecificity[~known], of_all[~known], atol=1e-5)
    different = np.abs(frame.nonspecificity - of_all)[known]
    assert 1e-5 < different.max() < 0.1


def test_rows_without_labels_and_tables_without_classes_are_refused(tmp_path, tree):
    values, labels = scores(20)
    table = write(tmp_path / "scores.csv", values)
    assert "no column named label, class, species" in run(table, "--taxonomy", tree, code=2)
    table = write(tmp_path / "scores.csv", values, label=[""] * 20)
    assert "No row of" in run(table, "--taxonomy", tree, code=1)
    other = tmp_path / "other.csv"
    pd.DataFrame({"a": [1], "lynx": [2]}).to_csv(other, index=False)
    said = run(other, "--taxonomy", tree, code=2)
    assert "1 column(s) named like a leaf of the taxonomy" in " ".join(said.split())
    table = write(tmp_path / "scores.csv", values, label=labels)
    said = run(table, "--taxonomy", tree, "--probabilities", code=1)
    assert "holds no probabilities" in " ".join(said.split())


def refusal(*arguments, code):
    return " ".join(run(*arguments, code=code).split())


def test_a_calibration_table_without_a_column_is_refused(tmp_path, tree):
    values, labels = scores(20)
    table = write(tmp_path / "scores.csv", values)
    held = tmp_path / "held.csv"
    pd.DataFrame(values[:, :2], columns=COLUMNS[:2]).assign(label=labels).to_csv(held, index=False)
    said = refusal(table, "--taxonomy", tree, "--calibration", held, code=2)
    assert "held.csvhasnonenamedlynx,fox." in said.replace(" ", "")  # a path may be broken


def test_one_labelled_row_or_group_needs_a_calibration_table(tmp_path, tree):
    values, labels = scores(20)
    one = np.where(np.arange(20) == 3, labels, "")
    table = write(tmp_path / "scores.csv", values, label=one)
    said = refusal(table, "--taxonomy", tree, code=1)
    assert "two labelled rows at least; it has 1. Give labelled scores with --calibration" in said
    table = write(tmp_path / "scores.csv", values, label=labels, group=["a"] * 20)
    assert "of two groups at least; it has 1." in refusal(table, "--taxonomy", tree, code=1)


def test_two_columns_of_one_leaf_are_refused(tmp_path, tree):
    tree.write_text(tree.read_text() + "bear,panda\n")
    values, labels = scores(20)
    table = write(tmp_path / "scores.csv", values, label=labels, bear=0.1, panda=0.2)
    assert "two of one leaf: 'bear' and 'panda'" in refusal(table, "--taxonomy", tree, code=2)


def test_both_tables_tell_whether_scores_are_logits(tmp_path, tree):
    values, labels = scores(60)
    held = write(tmp_path / "held.csv", np.clip(values / 10 + 0.5, 0, 1), label=labels)
    table = write(tmp_path / "scores.csv", values)
    arguments = table, "--taxonomy", tree, "--calibration", held, "--out", tmp_path / "out.csv"
    assert "taken for logits" in run(*arguments)
    said = refusal(*arguments, "--probabilities", code=1)
    assert "holds no probabilities" in said
    assert "Give --logits" in said
    assert "kind=" not in said


def test_folds_keep_groups_together(tmp_path, tree):
    values, labels = scores(40)
    groups = np.arange(40) % 8
    out = tmp_path / "out.csv"

    def written(labels):
        table = write(tmp_path / "scores.csv", values, label=labels, group=groups)
        run(table, "--taxonomy", tree, "--out", out)
        return pd.read_csv(out).nonspecificity.to_numpy()

    before = written(labels)
    other = labels.copy()
    other[0] = "fox" if labels[0] != "fox" else "wolf"
    # Another label of one row says nothing of the rows of its group.
    changed = np.abs(written(other) - before) > 1e-9
    assert changed.any()
    assert not changed[groups == groups[0]].any()


def test_a_run_on_other_images_is_another_run(tmp_path, tree, monkeypatch):
    identities = []

    class Watched(command.Spool):
        def __init__(self, target, columns, identity):
            identities.append(identity)
            super().__init__(target, columns, identity)

    monkeypatch.setattr(command, "Spool", Watched)
    values, labels = scores(30)
    for prefix in "aab":
        names = [f"{prefix}{row}.jpg" for row in range(30)]
        table = write(tmp_path / "scores.csv", values, label=labels, image=names)
        run(table, "--taxonomy", tree, "--out", tmp_path / "out.csv")
    assert identities[0] == identities[1] != identities[2]

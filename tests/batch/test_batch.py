"""Batch inference: the same predictions as predict, in parts that are written once."""

import copy
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skh2edl import (
    FlatCEClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    MinimumCostClassifier,
    Taxonomy,
)
from skh2edl.batch import job, predict_folder, predict_table

parquet = pytest.importorskip("pyarrow.parquet")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TREE = Taxonomy.from_nested(
    {"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]}, level_names=("family", "species")
)
TINY = {"backbone": "test_resnet", "weights": None, "image_size": 32, "finetune": "head"}


def pixels(n_images):
    return np.random.default_rng(n_images).integers(0, 256, (n_images, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def model():
    clf = H2EDLClassifier(TREE, random_state=0, **TINY)
    return clf.fit(pixels(24), list(TREE.leaves) * 6)


@pytest.fixture
def folder(tmp_path):
    """Seven images in two folders, one of them no image, and things to pass over."""
    top = tmp_path / "photos"
    for number, image in enumerate(pixels(7)):
        path = top / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    (top / "a" / "2.png").write_bytes(b"no image")
    (top / "notes.txt").write_text("passed over")
    (top / ".hidden.png").write_bytes(b"")
    outside = tmp_path / "outside.png"
    Image.fromarray(pixels(1)[0]).save(outside)
    (top / "link.png").symlink_to(outside)
    return top


PATHS = ["a/0.png", "a/2.png", "a/4.png", "a/6.png", "b/1.png", "b/3.png", "b/5.png"]


def in_a_pipeline(clf):
    return Pipeline([("classify", clf)])


def read(out):
    return parquet.read_table(out, partitioning=None).to_pandas()


def parts(out):
    return sorted(path.name for path in out.glob("part-*"))


def test_the_parts_hold_what_the_classifier_says(model, folder, tmp_path):
    report = predict_folder(model, folder, tmp_path / "out", partition_size=3)
    assert (report.n_images, report.n_parts, report.n_parts_before) == (7, 3, 0)
    assert report.n_unreadable == 1
    table = [read(tmp_path / "out" / name) for name in parts(tmp_path / "out")]
    found = table[0]
    assert [path for part in table for path in part["path"]] == PATHS
    assert found["error"].notna().tolist() == [False, True, False]
    assert "in none of the formats" in found["error"][1]
    assert found["leaf"].isna().tolist() == [False, True, False]

    images = [str(folder / path) for path in PATHS if path != "a/2.png"]
    rows = [row for part in table for row in part.to_dict("records") if row["path"] != "a/2.png"]
    proba, opinion = model.predict_proba(images), model.predict_hyper_opinion(images)
    assert [row["leaf"] for row in rows] == model.predict(images).tolist()
    assert [row["node_family"] for row in rows] == model.predict_level(images, "family").tolist()
    # classes_ of this tree are sorted, and so are its leaves.
    np.testing.assert_allclose(
        np.stack([row["probability_species"] for row in rows])[:, TREE.leaf_order], proba, atol=1e-6
    )
    np.testing.assert_allclose(
        np.stack([row["probability_family"] for row in rows]),
        model.predict_proba_level(images, "family"),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        np.stack([row["vacuity"] for row in rows]), opinion.vacuity, atol=1e-6
    )
    np.testing.assert_allclose(
        np.stack([row["depth_profile"] for row in rows]), opinion.depth_profile, atol=1e-6
    )
    np.testing.assert_allclose(
        [row["nonspecificity"] for row in rows], opinion.nonspecificity, atol=1e-6
    )
    note = json.loads(
        parquet.read_metadata(tmp_path / "out" / "part-00000.parquet").metadata[b"skh2edl"]
    )
    assert note["entries"]["probability_family"] == ["cat", "dog"]
    assert note["entries"]["vacuity"] == ["", "cat", "dog"]


def test_a_part_whose_images_are_all_bad_has_the_same_columns(model, folder, tmp_path):
    predict_folder(model, folder, tmp_path / "out", partition_size=1)
    schemas = [
        parquet.read_schema(tmp_path / "out" / name).remove_metadata()
        for name in parts(tmp_path / "out")
    ]
    assert len(schemas) == 7
    assert all(schema == schemas[0] for schema in schemas)


@pytest.mark.parametrize("wrap", [lambda clf: clf, MinimumCostClassifier, in_a_pipeline])
def test_an_unreadable_image_has_its_reason_whatever_is_around_the_classifier(
    model, folder, tmp_path, wrap
):
    skipping = copy.copy(model).set_params(on_bad_image="skip")
    y = list(TREE.leaves) * 6
    clf = wrap(FrozenEstimator(skipping)).fit(pixels(24), y)
    hedged = HedgedClassifier(FrozenEstimator(clf), 0.5, taxonomy=TREE).fit(pixels(24), y)
    report = predict_table(clf, PATHS, tmp_path / "out", root=folder, hedged=hedged)
    found = read(tmp_path / "out" / "part-00000.parquet").set_index("path")
    assert report.n_unreadable == 1
    assert "2.png' (X[1]) cannot be used as an image" in found.error["a/2.png"]
    assert found.leaf.isna().tolist() == [path == "a/2.png" for path in found.index]
    assert found.hedged.isna().tolist() == found.leaf.isna().tolist()
    assert skipping.on_bad_image == "skip"


def test_a_second_call_computes_only_what_is_missing(model, folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_part, asked, failing = job.write_part, [], {1}

    def write_some(work, number, paths):
        asked.append(number)
        if number in failing:
            raise OSError(28, "No space left on device")
        write_part(work, number, paths)

    monkeypatch.setattr(job, "write_part", write_some)
    with pytest.raises(OSError, match="No space left"):
        predict_folder(model, folder, out, partition_size=3)
    assert parts(out) == ["part-00000.parquet"]
    first = (out / "part-00000.parquet").stat().st_mtime_ns
    assert asked == [0, 1]
    failing.clear()
    report = predict_folder(model, folder, out, partition_size=3)
    assert asked[2:] == [1, 2]
    assert (report.n_parts, report.n_parts_before, report.n_unreadable) == (3, 1, 1)
    assert (out / "part-00000.parquet").stat().st_mtime_ns == first
    assert sorted(path.name for path in out.iterdir()) == ["job.json", *parts(out)]


def test_the_predictions_of_another_call_are_refused(model, folder, tmp_path):
    out = tmp_path / "out"
    predict_folder(model, folder, out, partition_size=3)
    other = FlatCEClassifier(TREE, random_state=0, **TINY).fit(pixels(24), list(TREE.leaves) * 6)
    with pytest.raises(ValueError, match="of another call: other model"):
        predict_folder(other, folder, out, partition_size=3)
    with pytest.raises(ValueError, match="of another call: other partition size"):
        predict_folder(model, folder, out, partition_size=4)
    with pytest.raises(ValueError, match="of another call: other paths"):
        predict_table(model, PATHS[1:], out, root=folder, partition_size=3)
    (out / "job.json").write_text("{")
    with pytest.raises(ValueError, match=r"job\.json is damaged"):
        predict_folder(model, folder, out, partition_size=3)
    (out / "job.json").unlink()
    with pytest.raises(ValueError, match=r"holds 3 part\(s\), first part-00000"):
        predict_folder(model, folder, out, partition_size=3)


def test_a_saved_model_is_the_same_job(model, folder, tmp_path):
    model.save(tmp_path / "model.safetensors")
    predict_folder(model, folder, tmp_path / "out", partition_size=3)
    report = predict_folder(
        tmp_path / "model.safetensors", folder, tmp_path / "out", partition_size=3
    )
    assert report.n_parts_before == 3


def test_hedged_predictions_do_not_read_images_again(model, folder, tmp_path, monkeypatch):
    hedged = HedgedClassifier(FrozenEstimator(model), target_accuracy=0.5)
    hedged.fit(pixels(24), list(TREE.leaves) * 6)
    good = [str(folder / path) for path in PATHS if path != "a/2.png"]
    expected = hedged.predict(good).tolist()
    reads = []
    read_X = H2EDLClassifier._read_X
    monkeypatch.setattr(
        H2EDLClassifier, "_read_X", lambda *args, **kw: reads.append(1) or read_X(*args, **kw)
    )
    predict_table(model, good, tmp_path / "out", hedged=hedged)
    assert len(reads) == 1
    frame = read(tmp_path / "out" / "part-00000.parquet")
    assert frame["hedged"].tolist() == expected
    assert (frame["hedged_probability"] > 0).all()


class Shy:
    def predict(self, X):
        return np.array(["root"] * len(X))


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_paths_may_stand_in_a_table(model, folder, tmp_path, kind):
    pandas = pytest.importorskip("pandas")
    good = [path for path in PATHS if path != "a/2.png"]
    table = pandas.DataFrame({"place": good, "other": range(6)})
    if kind != "frame":
        path = tmp_path / f"table.{kind}"
        table.to_csv(path) if kind == "csv" else table.to_parquet(path)
        table = path
    options = {"root": folder, "column": "place"}
    predict_table(model, table, tmp_path / "out", hedged=Shy(), **options)
    frame = read(tmp_path / "out" / "part-00000.parquet")
    assert frame["path"].tolist() == good
    assert set(frame["hedged"]) == {"root"}
    with pytest.raises(ValueError, match=r"not 'path'|No match|not exist"):
        predict_table(model, table, tmp_path / "other", root=folder)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"paths": []}, ValueError, "holds no image"),
        ({"paths": [3]}, TypeError, "value.s. that are no path, first 3"),
        ({"paths": "images.txt"}, ValueError, "must be a .csv file, a .parquet file"),
        ({"partition_size": 0}, ValueError, "must be 1 or more, got 0"),
        ({"partition_size": 2.5}, TypeError, "must be an integer, got 2.5"),
    ],
)
def test_wrong_arguments_are_named(model, tmp_path, change, error, message):
    arguments = {"paths": ["a.png"], "out": tmp_path / "out"} | change
    with pytest.raises(error, match=message):
        predict_table(model, **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_name_that_is_no_text_is_written_readably(model, tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    try:
        Image.fromarray(pixels(1)[0]).save(tmp_path / name)
    except OSError:
        pytest.skip("the file system wants text")
    predict_table(model, [name], tmp_path / "out", root=tmp_path)
    assert read(tmp_path / "out" / "part-00000.parquet")["path"][0] == "caf\\udce9.png"


# The examples, on a cluster of threads -----------------------------------------------------------


def example(name):
    pytest.importorskip("distributed")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_of_batch_inference_restarts(model, folder, tmp_path, capsys):
    model.save(tmp_path / "model.safetensors")
    out = tmp_path / "out"
    arguments = [str(tmp_path / "model.safetensors"), str(folder), str(out)]
    arguments += ["--threads", "--partition-size", "3"]
    main = example("dask_batch_inference").main
    assert main(arguments).n_parts_before == 0
    assert "7 images in 3 parts, 0 of them" in capsys.readouterr().out
    alone = predict_folder(model, folder, tmp_path / "alone", partition_size=3)
    for name in parts(alone.out):
        assert read(out / name).equals(read(alone.out / name))
    (out / "part-00001.parquet").unlink()
    assert main(arguments).n_parts_before == 2
    assert parts(out) == parts(alone.out)


def test_a_failed_partition_is_named_and_the_others_are_written(
    model, folder, tmp_path, monkeypatch
):
    distributed = pytest.importorskip("distributed")
    write_part = job.write_part

    def fail_once(work, number, paths):
        if number == 1:
            raise OSError(28, "No space left on device")
        write_part(work, number, paths)

    monkeypatch.setattr(job, "write_part", fail_once)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(RuntimeError, match="1 of 3 partitions failed, first number 1: OSError"),
    ):
        predict_folder(model, folder, tmp_path / "out", partition_size=3, client=client)
    assert parts(tmp_path / "out") == ["part-00000.parquet", "part-00002.parquet"]


@pytest.mark.slow
def test_the_example_of_a_search_finds_what_one_process_finds(capsys):
    from sklearn.base import clone
    from sklearn.datasets import load_digits

    arguments = ["--threads", "--workers", "2", "--samples", "120"]
    search, scores = example("dask_grid_search").main(arguments)
    assert f"digit: {scores['test_digit'].mean():.3f}" in capsys.readouterr().out
    X, y = load_digits(return_X_y=True)
    alone = clone(search).fit(X[:120], y[:120])
    assert alone.best_params_ == search.best_params_
    np.testing.assert_array_equal(
        alone.cv_results_["mean_test_digit"], search.cv_results_["mean_test_digit"]
    )

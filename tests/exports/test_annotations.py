"""COCO, FiftyOne and Label Studio: what they read, and labels that come back."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import Taxonomy
from skh2edl.exports import (
    Identifications,
    coco_predictions,
    fiftyone_dataset,
    fiftyone_labels,
    label_studio_config,
    label_studio_tasks,
    read_label_studio,
    write_export,
)
from tests.exports.exports_cases import IDS, LABELS, TREE, identified, opinion
from tests.strategies import taxonomies


def annotated(tasks, **change):
    """What Label Studio exports if annotators accept all predictions."""
    return [
        {
            "id": number,
            "data": task["data"],
            "annotations": [{"result": task["predictions"][0]["result"], **change}],
            "predictions": [],
        }
        for number, task in enumerate(tasks)
    ]


# COCO and FiftyOne -------------------------------------------------------------------------------


def test_categories_images_and_scores_refer_to_each_other():
    document = coco_predictions(identified())
    names = {category["id"]: category["name"] for category in document["categories"]}
    files = {image["id"]: image["file_name"] for image in document["images"]}
    found = {files[a["image_id"]]: names[a["category_id"]] for a in document["annotations"]}
    # The last image is identified as the root: nothing is said of it.
    assert found == dict(zip(IDS[:-1], LABELS[:-1], strict=True))
    assert len({a["id"] for a in document["annotations"]}) == 4
    assert Taxonomy.from_coco(document) == Taxonomy(TREE.names, TREE.parents)


def test_categories_name_their_parents():
    categories = {c["name"]: c for c in coco_predictions(identified())["categories"]}
    assert categories["Lynx lynx"]["supercategory"] == "Lynx"
    assert categories["Felidae"]["supercategory"] == "none"


def test_fiftyone_labels_carry_vacuity_and_how_far_the_evidence_reaches():
    labels = fiftyone_labels(identified())
    assert [label["label"] for label in labels] == LABELS
    assert labels[1]["path"] == ["Felidae", "Lynx"]
    assert labels[1]["level"] == "genus"
    assert labels[1]["leaf"] == "Lynx lynx"
    assert labels[2]["vacuity"] == pytest.approx(3 / 13, abs=1e-6)
    own = opinion()
    np.testing.assert_allclose(
        [label["nonspecificity"] for label in labels], own.nonspecificity, atol=1e-6
    )
    assert "vacuity" not in fiftyone_labels(identified(opinion=None))[0]


def test_files_are_known_to_fiftyone_without_their_endings():
    found = Identifications.from_proba(
        [[0.9, 0.1]] * 2, Taxonomy.flat(["x", "y"]), ["a/1.jpg", "2"]
    )
    assert list(fiftyone_dataset(found)["labels"]) == ["a/1", "2"]
    twice = Identifications.from_proba(
        [[0.9, 0.1]] * 2, Taxonomy.flat(["x", "y"]), ["1.jpg", "1.png"]
    )
    with pytest.raises(ValueError, match=r"'1' is there twice\. Give absolute paths"):
        fiftyone_dataset(twice)


def test_fiftyone_reads_the_labels(tmp_path):
    labels = pytest.importorskip("fiftyone.core.labels", reason="fiftyone is not installed")
    parsers = pytest.importorskip("fiftyone.utils.data.parsers", reason="fiftyone is not installed")
    write_export(identified(), tmp_path / "labels.json", "fiftyone")
    document = json.loads((tmp_path / "labels.json").read_text())
    parser = parsers.FiftyOneImageClassificationSampleParser()
    parser.classes = document["classes"]
    for name, label, expected in zip(IDS, LABELS, fiftyone_labels(identified()), strict=True):
        parser.with_sample((name, document["labels"][name.split(".")[0]]))
        read = parser.get_label()
        assert read.label == label
        assert read.confidence == expected["confidence"]
        assert read.vacuity == expected["vacuity"]
        direct = labels.Classification(**expected)
        assert direct.path == expected["path"]
        assert labels.Label.from_dict(direct.to_dict()).vacuity == expected["vacuity"]


# Label Studio ------------------------------------------------------------------------------------


def test_half_way_annotations_come_back_as_the_labels_they_were(tmp_path):
    write_export(identified(), tmp_path / "tasks.json", "label-studio", model_version="cats 1.0")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    path = tmp_path / "export.json"
    path.write_text(json.dumps(annotated(tasks)))
    ids, labels = read_label_studio(path, TREE)
    assert ids == IDS
    assert labels.tolist() == LABELS


@given(taxonomies(longest_chain=3), st.data())
def test_every_node_of_every_tree_makes_the_round_trip(tree, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), min_size=1, max_size=6))
    proba = np.full((len(nodes), tree.n_leaves), 1 / tree.n_leaves)
    paths = [tree._index.path(node) for node in nodes]
    found = Identifications.from_proba(proba, tree, range(len(nodes)), labels=paths)
    tasks = json.loads(json.dumps(label_studio_tasks(found, model_version="1")))
    _, labels = read_label_studio(annotated(tasks), tree)
    back = tree.last_of_chain[tree.resolve(labels)]
    assert back.tolist() == tree.last_of_chain[np.array(nodes)].tolist()


def test_the_interface_has_a_choice_for_every_node():
    tree = Taxonomy.from_nested({"a & b": ['"x"', "<y>"], "c": None})
    root = ElementTree.fromstring(label_studio_config(tree, data_field="photo"))
    choices = [choice.get("value") for choice in root.iter("Choice")]
    assert choices == ["a & b", '"x"', "<y>", "c"]
    nested = root.find("Taxonomy/Choice")
    assert [choice.get("value") for choice in nested] == ['"x"', "<y>"]
    assert root.find("Taxonomy").get("leafsOnly") == "false"
    assert root.find("Image").get("value") == "$photo"


def choose(*paths, **change):
    result = [
        {"from_name": "taxonomy", "to_name": "image", "type": "taxonomy",
         "value": {"taxonomy": [list(path) for path in paths]}}
    ]  # fmt: skip
    return {"result": result if paths else [], **change}


LYNX, PUMA = ("Felidae", "Lynx", "Lynx lynx"), ("Felidae", "Puma", "Puma concolor")


@pytest.mark.parametrize(
    ("annotations", "label"),
    [
        ([choose(LYNX)], "Lynx lynx"),
        ([choose(LYNX[:2])], "Lynx"),
        ([choose(LYNX, LYNX[:1])], "Lynx lynx"),
        ([choose(LYNX, PUMA)], "Felidae"),
        ([choose(LYNX), choose(LYNX[:1])], "Felidae"),
        ([choose(LYNX), choose(PUMA, was_cancelled=True)], "Lynx lynx"),
        ([choose(LYNX), choose()], "Lynx lynx"),
        ([choose(LYNX), choose(("blank",))], "root"),
        ([choose()], "root"),
        ([], "root"),
    ],
)
def test_several_choices_are_what_they_agree_on(annotations, label):
    task = {"data": {"image": "http://x/1.jpg"}, "annotations": annotations}
    assert read_label_studio([task], TREE)[1].tolist() == [label]
    assert read_label_studio([task], TREE)[0] == ["http://x/1.jpg"]


def test_the_short_export_is_read_too():
    tasks = [
        {"image": "1.jpg", "id": 7, "taxonomy": [["Felidae", "Lynx"]], "annotator": 1},
        {"image": "2.jpg", "id": 8},
        {"image": "3.jpg", "id": 9, "taxonomy": [{"taxonomy": [["Canidae"]]}]},
    ]
    ids, labels = read_label_studio(tasks, TREE)
    assert ids == ["1.jpg", "2.jpg", "3.jpg"]
    assert labels.tolist() == ["Lynx", "root", "Canidae"]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ([choose(LYNX, PUMA)], "several choices in one annotation"),
        ([choose(LYNX), choose(PUMA)], r"annotators of '1' disagree: \['Lynx lynx', 'Puma con"),
    ],
)
def test_disagreement_can_be_an_error(annotations, message):
    task = {"data": {"image": "1"}, "annotations": annotations}
    with pytest.raises(ValueError, match=message):
        read_label_studio([task], TREE, several="error")


def test_an_export_of_something_else_is_refused():
    with pytest.raises(ValueError, match=r"is a JSON list of tasks, got \{'tasks'"):
        read_label_studio({"tasks": []}, TREE)
    with pytest.raises(ValueError, match=r"Task 0 has no field 'image', but \['text'\]"):
        read_label_studio([{"data": {"text": "x"}}], TREE)
    with pytest.raises(ValueError, match="several must be 'lca' or 'error', got 'vote'"):
        read_label_studio([], TREE, several="vote")
    other = [{"from_name": "taxonomy", "type": "choices", "value": {"choices": ["x"]}}]
    with pytest.raises(ValueError, match=r"Task 0 \('1'\) has no annotation of a Taxonomy tag"):
        read_label_studio([{"data": {"image": "1"}, "annotations": [{"result": other}]}], TREE)
    unknown = {"data": {"image": "1"}, "annotations": [choose(("Felidae", "Leo"))]}
    with pytest.raises(ValueError, match="not in the taxonomy"):
        read_label_studio([unknown], TREE)


def test_addresses_replace_files_and_ids_stay():
    tasks = label_studio_tasks(identified(), model_version="1", url="http://x/{}".format)
    assert tasks[0]["data"]["image"] == "http://x/a.jpg"
    assert read_label_studio(annotated(tasks), TREE)[0] == IDS


def test_label_studio_accepts_interface_tasks_and_predictions():
    interfaces = pytest.importorskip(
        "label_studio_sdk.label_interface", reason="label-studio-sdk is not installed"
    )
    interface = interfaces.LabelInterface(label_studio_config(TREE))
    interface.validate()
    tasks = label_studio_tasks(identified(), model_version="cats 1.0")
    for task in tasks:
        for prediction in task["predictions"]:
            assert interface.validate_prediction(prediction, return_errors=True) == []
        done = {"result": task["predictions"][0]["result"]}
        assert interface.validate_annotation(done)
    wrong = json.loads(json.dumps(tasks[0]["predictions"][0]))
    wrong["result"][0]["value"]["taxonomy"] = [["Ursidae"]]
    assert interface.validate_prediction(wrong, return_errors=True) != []


def test_the_converter_of_label_studio_keeps_half_way_annotations(tmp_path):
    converter = pytest.importorskip(
        "label_studio_sdk.converter.converter", reason="label-studio-sdk is not installed"
    )
    tasks = annotated(label_studio_tasks(identified(), model_version="cats 1.0"))
    for number, task in enumerate(tasks):
        task["annotations"][0] |= {
            "id": number,
            "completed_by": 1,
            "created_at": "",
            "lead_time": 1,
        }
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "tasks.json").write_text(json.dumps(tasks[:4]))
    made = converter.Converter(label_studio_config(TREE), str(tmp_path))
    made.convert_to_json_min(str(tmp_path / "in"), str(tmp_path / "out"))
    ids, labels = read_label_studio(next((tmp_path / "out").glob("*.json")), TREE)
    assert ids == IDS[:4]
    assert labels.tolist() == LABELS[:4]


@pytest.mark.parametrize(
    ("path", "format", "message"),
    [
        ("x.json", "ranks", r"format 'ranks' is written to a \.csv file, got 'x\.json'"),
        ("x.csv", "excel", r"format must be one of \['ranks', .*got 'excel'"),
    ],
)
def test_a_format_or_ending_that_is_not_known_is_refused(path, format, message):
    with pytest.raises(ValueError, match=message):
        write_export(identified(), path, format)

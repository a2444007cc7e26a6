"""``skh2edl publish``, and trees of other programs on the command line."""

import json

import pandas as pd
import pytest
from cli_cases import invoke, make_photos, make_zoo, read_csv, write_table

from skh2edl import Taxonomy, load_model
from skh2edl.cli.taxonomy import read_tree
from skh2edl.exports import read_label_studio


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    make_zoo(folder)
    rows = [[3, 0, 0], [0, 3, 0], [1.5, 1.5, 0]]
    write_table(folder / "new.csv", rows, ("size", "speed", "ears"))
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_photos(folder)
    return folder


def publish(folder, form, out, *more, inputs="new.csv"):
    return invoke(
        "publish", folder / "model.safetensors", folder / inputs, "--as", form, "-o", out, *more
    )


def test_a_table_of_ranks_is_what_the_model_predicts(zoo, tmp_path):
    result = publish(zoo, "ranks", tmp_path / "r.csv")
    assert result.exit_code == 0, result.output
    rows = read_csv(tmp_path / "r.csv")
    model = load_model(zoo / "model.safetensors")
    X = [[3, 0, 0], [0, 3, 0], [1.5, 1.5, 0]]
    frame = pd.DataFrame(X, columns=["size", "speed", "ears"])
    assert [row["species"] for row in rows] == model.predict(frame).tolist()
    assert float(rows[0]["score"]) == pytest.approx(model.predict_proba(frame)[0].max(), abs=1e-5)


def test_thresholds_and_targets_stop_at_coarser_classes(zoo, tmp_path):
    assert publish(zoo, "ranks", tmp_path / "a.csv", "--threshold", "species=0.9").exit_code == 0
    last = read_csv(tmp_path / "a.csv")[2]
    assert (last["kind"], last["species"]) == ("cat", "")
    assert (
        publish(zoo, "darwin-core", tmp_path / "b.csv", "--target-accuracy", "0.95").exit_code == 0
    )
    rows = read_csv(tmp_path / "b.csv")
    assert rows[0]["identificationVerificationStatus"] == "unverified"
    assert rows[0]["identifiedBy"].startswith("model (skh2edl")


@pytest.mark.parametrize("how", ["list", "file"])
def test_candidates_are_the_only_ones_predicted(zoo, tmp_path, how):
    park = "puma,dog"
    if how == "file":
        (tmp_path / "park.txt").write_text("puma\n\ndog\n")
        park = tmp_path / "park.txt"
    # A sure lynx is hardly a puma or a dog.
    with pytest.warns(UserWarning, match="of their probability on the candidates, first sample 0"):
        result = publish(zoo, "ranks", tmp_path / "r.csv", "--candidates", park)
    assert result.exit_code == 0, result.output
    assert {row["species"] for row in read_csv(tmp_path / "r.csv")} <= {"puma", "wolf"}


def test_label_studio_fiftyone_and_coco_are_written_as_json(zoo, tmp_path):
    tree = load_model(zoo / "model.safetensors").taxonomy_
    for form in ("label-studio", "fiftyone", "coco"):
        assert publish(zoo, form, tmp_path / f"{form}.json").exit_code == 0
    tasks = json.loads((tmp_path / "label-studio.json").read_text())
    done = [
        {"data": t["data"], "annotations": [{"result": t["predictions"][0]["result"]}]}
        for t in tasks
    ]
    assert read_label_studio(done, tree)[1].tolist()[:2] == ["lynx", "puma"]
    labels = json.loads((tmp_path / "fiftyone.json").read_text())["labels"]
    assert all(0 < label["attributes"]["vacuity"] <= 1 for label in labels.values())
    document = json.loads((tmp_path / "coco.json").read_text())
    assert Taxonomy.from_coco(document).leaves == tree.leaves


def test_photographs_of_a_camera_trap_become_observations_of_events(photos, tmp_path):
    names = sorted((photos / "data" / "green").glob("*.png"))
    header = ("mediaID", "deploymentID", "timestamp", "filePath")
    rows = [
        [f"m{i}", "d1", f"2024-05-01T12:{i // 2 * 10:02d}:00Z", f"media/{name.name}"]
        for i, name in enumerate(names)
    ]
    write_table(tmp_path / "media.csv", rows[:6], header)
    pictures = tmp_path / "shots"
    pictures.mkdir()
    for name in names[:6]:
        (pictures / name.name).write_bytes(name.read_bytes())
    (pictures / "broken.png").write_bytes(b"no picture")
    more = ("--media", tmp_path / "media.csv", "--type", "green=blank", "--workers", 0)
    out = tmp_path / "obs.csv"
    base = ("publish", photos / "model.safetensors", pictures, "--as", "camtrap-dp", "-o", out)
    result = invoke(*base, *more, "--events")
    assert result.exit_code == 0, result.output
    assert "1 could not be read" in result.stderr
    found = read_csv(out)
    assert [row["eventID"] for row in found] == ["d1-1", "d1-2", "d1-3"]
    assert {row["observationLevel"] for row in found} == {"event"}
    assert {row["observationType"] for row in found} <= {"blank", "animal", "unknown"}
    assert invoke(*base, *more).exit_code == 0
    assert len(read_csv(out)) == 6


@pytest.mark.parametrize(
    ("form", "out", "more", "message", "code"),
    [
        ("excel", "x.csv", (), "--as must be one of ranks, darwin-core", 2),
        ("coco", "x.csv", (), "must end in .json", 2),
        ("camtrap-dp", "x.csv", (), "camtrap-dp needs --media", 2),
        (
            "ranks",
            "x.csv",
            ("--target-accuracy", 0.9, "--candidates", "cat"),
            "cannot be kept among",
            2,
        ),
        ("ranks", "x.csv", ("--threshold", "species"), "must look like NAME=VALUE", 2),
        ("ranks", "x.csv", ("--threshold", "species=high"), "must end in a number", 2),
        ("ranks", "x.csv", ("--threshold", "order=0.5"), "has no level 'order'", 1),
        ("ranks", "x.csv", ("--candidates", "bird"), "candidates must name nodes", 1),
        ("ranks", "x.csv", ("--target-accuracy", "0.999"), "Lower --target-accuracy", 1),
    ],
)
def test_what_cannot_be_published_is_refused(zoo, tmp_path, form, out, more, message, code):
    result = publish(zoo, form, tmp_path / out, *more)
    assert message in " ".join(result.stderr.split())
    assert result.exit_code == code
    assert not (tmp_path / out).exists()


def test_trees_of_other_programs_are_known_by_their_endings(tmp_path):
    (tmp_path / "a.tsv").write_text("family\tgenus\nFelidae\tLynx\nFelidae\tPuma\n")
    terms = ["id: 1\nname: pet", "id: 2\nname: cat\nis_a: 1", "id: 3\nname: dog\nis_a: 1"]
    (tmp_path / "b.obo").write_text("".join(f"[Term]\n{term}\n\n" for term in terms))
    categories = [{"name": "cat", "supercategory": "pet"}, {"name": "dog", "supercategory": "pet"}]
    (tmp_path / "c.json").write_text(json.dumps({"categories": categories}))
    nodes = [{"id": "1", "lbl": "pet"}, {"id": "2", "lbl": "cat"}, {"id": "3", "lbl": "dog"}]
    edges = [{"sub": str(i), "pred": "is_a", "obj": "1"} for i in (2, 3)]
    (tmp_path / "d.json").write_text(json.dumps({"graphs": [{"nodes": nodes, "edges": edges}]}))
    children = [{"name": "cat"}, {"name": "dog"}]
    (tmp_path / "e.json").write_text(json.dumps({"name": "pet", "children": children}))
    assert read_tree(tmp_path / "a.tsv").level_names == ("family", "genus")
    pets = Taxonomy.flat(["cat", "dog"], root_name="pet")
    assert [read_tree(tmp_path / name) for name in ("b.obo", "c.json", "d.json", "e.json")] == [
        pets
    ] * 4
    (tmp_path / "nodes.dmp").write_text("1\t|\t1\t|\tno rank\t|\n2\t|\t1\t|\tgenus\t|\n"
                                        "3\t|\t1\t|\tgenus\t|\n")  # fmt: skip
    names = ["root", "Lynx", "Puma"]
    (tmp_path / "names.dmp").write_text(
        "".join(f"{i}\t|\t{n}\t|\t\t|\tscientific name\t|\n" for i, n in enumerate(names, start=1))
    )
    assert read_tree(tmp_path).leaves == ("Lynx", "Puma")

"""Public datasets: small images written in each official format, and the real label lists."""

import csv
import hashlib
import os
import tarfile
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest
import torchvision
from PIL import Image

from skh2edl import ImageFeatureExtractor
from skh2edl.datasets import fgvc_aircraft, load_derm12345, load_fgvc_aircraft, load_grocery_store
from skh2edl.images import image_source

LEVELS = ("manufacturer", "family", "variant")


def save_image(path, size=(40, 60), banner=0):
    """Write a grey picture; a white banner at the bottom where asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0], 3), 90, dtype=np.uint8)
    if banner:
        pixels[-banner:] = 255
    Image.fromarray(pixels).save(path)


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# FGVC-Aircraft ---------------------------------------------------------------------------------

AIRCRAFT = {
    "train": [
        ("0034309", "Boeing", "Boeing 707", "707-320"),
        ("0034958", "Boeing", "Boeing 737", "737-300"),
        ("0037511", "McDonnell Douglas", "F/A-18", "F/A-18"),
    ],
    "val": [("0037512", "Boeing", "Boeing 737", "737-400")],
    "test": [("0061581", "de Havilland", "Dash 8", "DHC-8-100")],
}


def write_aircraft(root, rows=AIRCRAFT, images=True):
    data = root / "fgvc-aircraft-2013b" / "data"
    data.mkdir(parents=True)
    for level, names in enumerate(("manufacturers.txt", "families.txt", "variants.txt"), start=1):
        known = dict.fromkeys(row[level] for part in rows.values() for row in part)
        (data / names).write_text("".join(f"{name}\n" for name in known))
    for split, part in rows.items():
        for level, name in enumerate(LEVELS, start=1):
            lines = [f"{row[0]} {row[level]}\n" for row in part]
            (data / f"images_{name}_{split}.txt").write_text("".join(lines))
        for row in part if images else ():
            save_image(data / "images" / f"{row[0]}.jpg", banner=20)
    return data


def test_aircraft_are_read_from_the_official_files(tmp_path):
    data = write_aircraft(tmp_path)
    record = load_fgvc_aircraft(tmp_path)
    assert record.counts == {"train": 3, "val": 1, "test": 1}
    assert record.ids.tolist() == ["0034309", "0034958", "0037511", "0037512", "0061581"]
    assert record.labels.tolist() == ["707-320", "737-300", "F/A-18", "737-400", "DHC-8-100"]
    assert record.taxonomy.path("F/A-18") == ("McDonnell Douglas", "F/A-18", "F/A-18")
    assert record.taxonomy.level_names == LEVELS
    assert record.images[0] == str(data / "images" / "0034309.jpg")
    assert record.groups.tolist() == record.ids.tolist()


@pytest.mark.parametrize("inside", [".", "fgvc-aircraft-2013b", "fgvc-aircraft-2013b/data"])
def test_aircraft_are_found_from_any_of_three_folders(tmp_path, inside):
    write_aircraft(tmp_path)
    assert len(load_fgvc_aircraft(tmp_path / inside)) == 5


def test_the_banner_of_an_aircraft_is_cropped_and_the_file_is_not_changed(tmp_path):
    write_aircraft(tmp_path)
    record = load_fgvc_aircraft(tmp_path)
    assert record.crop == (0, 0, 0, 20)
    image = record.open(0)
    assert image.size == (40, 40)
    assert np.asarray(image)[:36].max() < 120  # white starts at row 40; JPEG blurs 8 x 8 blocks
    with Image.open(record.images[0]) as file:
        assert file.size == (40, 60)


def test_classifiers_read_aircraft_without_the_banner(tmp_path):
    write_aircraft(tmp_path)
    record = load_fgvc_aircraft(tmp_path)
    source = record.source
    assert len(source) == 5
    for position in range(5):
        seen = np.asarray(source.read(position))
        np.testing.assert_array_equal(seen, np.asarray(record.open(position)))
        assert seen.shape == (40, 40, 3)
    # A scaled-down decoding would count the banner in other pixels.
    assert source.read(0, min_side=10).size == (40, 40)
    # Cached features of the whole picture are not taken for those of the cropped one.
    assert source.identity(0) != image_source(record.images).identity(0)
    features = ImageFeatureExtractor("test_resnet", weights=None, image_size=32)
    whole = features.fit_transform(record.images)
    assert (features.transform(source) != whole).any(axis=1).all()


def test_cropped_copies_of_aircraft_are_written_once(tmp_path):
    write_aircraft(tmp_path)
    record = load_fgvc_aircraft(tmp_path)
    copies = record.crop_files(tmp_path / "cropped")
    assert copies.crop == (0, 0, 0, 0)
    assert copies.labels.tolist() == record.labels.tolist()
    assert copies.images[0] == str(tmp_path / "cropped" / "0034309.jpg")
    difference = np.asarray(copies.open(0), int) - np.asarray(record.open(0), int)
    assert np.abs(difference).max() <= 3  # JPEG once more
    assert len(list((tmp_path / "cropped").iterdir())) == 5
    written = [os.stat(path).st_mtime_ns for path in copies.images]
    again = record.crop_files(tmp_path / "cropped")
    assert [os.stat(path).st_mtime_ns for path in again.images] == written
    assert again.crop_files(tmp_path / "twice") is again


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("level", LEVELS)
def test_aircraft_agree_with_torchvision(tmp_path, split, level):
    write_aircraft(tmp_path)
    theirs = torchvision.datasets.FGVCAircraft(tmp_path, split=split, annotation_level=level)
    ours = load_fgvc_aircraft(tmp_path).subset(split)
    tree = ours.taxonomy
    assert [tree.path(label)[LEVELS.index(level)] for label in ours.labels] == [
        theirs.classes[i] for i in theirs._labels
    ]
    assert ours.images.tolist() == [str(file) for file in theirs._image_files]


def test_aircraft_reproduce_the_published_counts(assets, tmp_path):
    lists = {}
    for name in ("trainval", "test"):
        text = (assets / "taxonomies" / f"images_variant_{name}.txt").read_text().splitlines()
        lists[name] = [line.split(" ", 1) for line in text]
    tree = pd.read_csv(assets / "taxonomies" / "fgvc_aircraft_taxonomy.csv").astype(str)
    above = {v: (m, f) for m, f, v in tree[list(LEVELS)].itertuples(index=False)}
    rows = {name: [(i, *above[v], v) for i, v in part] for name, part in lists.items()}
    # The official lists of train and val are two halves of this one.
    rows = {
        "train": rows["trainval"][::2],
        "val": rows["trainval"][1::2],
        "test": rows["test"],
    }
    write_aircraft(tmp_path, rows, images=False)
    record = load_fgvc_aircraft(tmp_path, check="none")
    assert len(record.subset("train", "val")) == 6667
    assert len(record.subset("test")) == 3333
    tree = record.taxonomy
    assert [len(tree.level_nodes(level)) for level in LEVELS] == [30, 70, 100]
    assert (tree.n_leaves, tree.n_branching) == (100, 33)
    # Every variant has 100 images, of which two thirds are for training.
    assert set(np.unique(record.labels, return_counts=True)[1].tolist()) == {100}
    assert set(np.unique(record.subset("test").labels, return_counts=True)[1]) == {33, 34}


def test_a_missing_aircraft_list_is_named_with_its_place(tmp_path):
    data = write_aircraft(tmp_path)
    (data / "images_family_val.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected a file at .*images_family_val\.txt"):
        load_fgvc_aircraft(tmp_path)


def test_an_empty_folder_says_where_the_aircraft_were_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"fgvc-aircraft-2013b/data/images_variant_train"):
        load_fgvc_aircraft(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"root must be a folder, and there is none at"):
        load_fgvc_aircraft(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("images_variant_train.txt", "0034309 707-320\n00349", r"line 2: expected a number not"),
        ("images_variant_train.txt", "photo 707-320\n", r"line 1: expected .* got 'photo 707-320'"),
        ("images_variant_train.txt", "1 a\n1 b\n", r"line 2: expected a number not listed"),
        ("images_variant_test.txt", "", r"images_variant_test\.txt is empty"),
        ("images_family_train.txt", "0034309 Boeing 707\n", r"images_family_train.* 2 are in one"),
        (
            "images_manufacturer_val.txt",
            "0037512 Airbus\n",
            r"the family 'Boeing 737' lies under both 'Boeing' and 'Airbus'",
        ),
    ],
)
def test_malformed_aircraft_lists_are_named_with_the_line(tmp_path, file, text, message):
    data = write_aircraft(tmp_path)
    (data / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_fgvc_aircraft(tmp_path)


def test_a_binary_list_is_refused(tmp_path):
    data = write_aircraft(tmp_path)
    (data / "images_variant_val.txt").write_bytes(b"\x1f\x8b\x08\xff\xfe")
    with pytest.raises(
        ValueError, match=r"images_variant_val\.txt cannot be read as text in UTF-8"
    ):
        load_fgvc_aircraft(tmp_path)


def test_an_image_in_two_splits_is_refused(tmp_path):
    rows = {**AIRCRAFT, "val": AIRCRAFT["train"][:1]}
    write_aircraft(tmp_path, rows)
    with pytest.raises(ValueError, match=r"ids must be unique, .* first \['0034309'\]"):
        load_fgvc_aircraft(tmp_path)


def test_missing_empty_and_damaged_images_are_found_as_closely_as_asked(tmp_path):
    data = write_aircraft(tmp_path)
    image = data / "images" / "0037512.jpg"
    image.write_bytes(image.read_bytes()[:300])
    assert len(load_fgvc_aircraft(tmp_path)) == 5
    with pytest.raises(FileNotFoundError, match=r"1 of 5 images .*0037512\.jpg and is damaged"):
        load_fgvc_aircraft(tmp_path, check="decode")
    image.write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"1 of 5 images .*0037512\.jpg and is empty"):
        load_fgvc_aircraft(tmp_path)
    image.unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 5 images .*0037512\.jpg and is not there"):
        load_fgvc_aircraft(tmp_path)
    assert len(load_fgvc_aircraft(tmp_path, check="none")) == 5
    with pytest.raises(ValueError, match=r"check must be one of .* got 'closely'"):
        load_fgvc_aircraft(tmp_path, check="closely")


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Put an archive with five aircraft where the official one is fetched from."""
    source = tmp_path / "source"
    write_aircraft(source)
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as bundle:
        bundle.add(source / "fgvc-aircraft-2013b", arcname="fgvc-aircraft-2013b")
    monkeypatch.setattr(fgvc_aircraft, "URL", path.as_uri())
    return path


def test_aircraft_are_downloaded_once(tmp_path, archive):
    root = tmp_path / "new" / "root"
    assert len(load_fgvc_aircraft(root, download=True)) == 5
    assert [path.name for path in root.iterdir()] == ["fgvc-aircraft-2013b"]
    archive.unlink()
    assert len(load_fgvc_aircraft(root, download=True)) == 5


def test_a_download_that_breaks_off_leaves_nothing_behind(tmp_path, archive):
    archive.write_bytes(archive.read_bytes()[:400])
    root = tmp_path / "root"
    with pytest.raises(OSError, match="sent an archive that cannot be unpacked"):
        load_fgvc_aircraft(root, download=True)
    assert list(root.iterdir()) == []


def test_a_download_shorter_than_announced_is_refused(tmp_path, archive, monkeypatch):
    def announce_more(url, timeout):
        response = urlopen(url, timeout=timeout)
        response.headers.replace_header("Content-Length", "999999")
        return response

    monkeypatch.setattr(fgvc_aircraft, "urlopen", announce_more)
    with pytest.raises(OSError, match=rf"sent {archive.stat().st_size} of 999999 bytes"):
        load_fgvc_aircraft(tmp_path / "root", download=True)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_half_unpacked_folder_is_not_overwritten(tmp_path, archive):
    (tmp_path / "root" / "fgvc-aircraft-2013b").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=r"unpacked in part\. Remove it and try again"):
        load_fgvc_aircraft(tmp_path / "root", download=True)


# DERM12345 -------------------------------------------------------------------------------------


def derm_row(image, patient, super_class, malignancy, main_1, main_2, label):
    return {
        "image_id": image,
        "patient_id": patient,
        "image_type": "dermoscopic",
        "copyright-license": "CC-BY-NC",
        "split": "train",
        "super_class": super_class,
        "malignancy": malignancy,
        "main_class_1": main_1,
        "main_class_2": main_2,
        "sub_class": label,
        "label": label,
    }


DERM = {
    "train": [
        derm_row("ISIC_1", "P1", "melanocytic", "benign", "banal", "compound", "acb"),
        derm_row("ISIC_2", "P1", "Melanocytic", "Benign", "Banal", "Compound", "ACB"),
        derm_row("ISIC_3", "P2", "melanocytic", "malignant", "melanoma", "melanoma", "mel"),
        derm_row("ISIC_4", "P3", "nonmelanocytic", "benign", "vascular", "vascular", "ha"),
    ],
    "test": [
        derm_row("ISIC_5", "P9", "nonmelanocytic", "indeterminate", "keratinocytic", "k", "ak"),
        derm_row("ISIC_6", "", "nonmelanocytic", "malignant", "keratinocytic", "k", "bcc"),
    ],
}
DERM_PLACES = {
    "ISIC_1": "derm12345_train_part_1/acb",
    "ISIC_2": "derm12345_train_part_2/ACB",
    "ISIC_3": "derm12345_train_part_2/mel",
    "ISIC_4": "derm12345_train_part_1/ha",
    "ISIC_5": "derm12345_test/ak",
    "ISIC_6": "derm12345_test/bcc",
}


def write_derm(root, rows=DERM, places=DERM_PLACES):
    for part, part_rows in rows.items():
        write_csv(root / f"derm12345_metadata_{part}.csv", part_rows)
    for image, place in places.items():
        save_image(root / place / f"{image}.jpg")


def test_derm_is_read_from_the_official_files(tmp_path):
    write_derm(tmp_path)
    record = load_derm12345(tmp_path, val_fraction=0.0)
    assert record.counts == {"train": 4, "val": 0, "test": 2}
    assert record.labels.tolist() == ["acb", "acb", "mel", "ha", "ak", "bcc"]
    assert record.groups.tolist() == ["P1", "P1", "P2", "P3", "P9", "ISIC_6"]
    assert record.images[1] == str(tmp_path / "derm12345_train_part_2" / "ACB" / "ISIC_2.jpg")
    assert record.licence == "CC-BY-NC"


def test_a_super_class_of_derm_is_a_label_and_malignancy_a_column(tmp_path):
    write_derm(tmp_path)
    record = load_derm12345(tmp_path)
    tree = record.taxonomy
    assert tree.level_names == ("super_class", "main_class_1", "main_class_2", "label")
    # The paper's example of a label that stops above the leaves.
    assert tree.path("melanocytic") == ("melanocytic",)
    assert sorted(tree.level("super_class")) == ["melanocytic", "nonmelanocytic"]
    assert tree.path("ak") == ("nonmelanocytic", "keratinocytic", "k", "ak")
    assert record.info["malignancy"].tolist() == [
        "benign", "benign", "malignant", "benign", "indeterminate", "malignant",
    ]  # fmt: skip


def test_derm_reproduces_the_published_counts(assets, tmp_path):
    classes = pd.read_csv(assets / "taxonomies" / "derm12345_taxonomy.csv")
    keys = ["super_class", "malignancy", "main_class_1", "main_class_2", "label"]
    spell = (str.lower, str.upper, str.capitalize)
    rows = {"train": [], "test": []}
    for part, part_rows in rows.items():
        for values, count in zip(classes[keys].to_numpy(), classes[f"n_{part}"], strict=True):
            for _ in range(count):
                number = len(part_rows)
                spelled = [spell[number % 3](value) for value in values]
                part_rows.append(derm_row(f"{part}_{number}", f"{part}_{number % 1500}", *spelled))
    write_derm(tmp_path, rows, places={})
    record = load_derm12345(tmp_path, check="none")
    assert len(record.subset("train", "val")) == 9860
    assert len(record.subset("test")) == 2485
    tree = record.taxonomy
    assert tree.n_leaves == 40
    # The paper: "a 4-level diagnostic taxonomy, 40 leaves and 15 branching nodes".
    assert tree.n_branching == 15
    levels = ["super_class", "main_class_1", "main_class_2", "label"]
    n_nodes = [len(classes.drop_duplicates(levels[: d + 1])) for d in range(4)]
    assert [len(tree.level_nodes(level)) for level in levels] == n_nodes == [2, 7, 11, 40]
    assert set(record.labels.tolist()) == set(classes["label"])
    held_out = np.unique(record.subset("val").groups)
    assert len(held_out) == 150  # a tenth of 1500 patients
    assert not np.isin(record.subset("train").groups, held_out).any()


def test_held_out_patients_do_not_depend_on_the_order_of_rows(tmp_path):
    rows = [
        derm_row(f"I{i}", f"P{i // 3}", "melanocytic", "benign", "banal", "dermal", "ab"[i % 2])
        for i in range(300)
    ]
    held_out = []
    for name, order in (("one", rows), ("two", rows[::-1])):
        (tmp_path / name).mkdir()
        write_derm(tmp_path / name, {"train": order, "test": DERM["test"]}, places={})
        record = load_derm12345(tmp_path / name, check="none")
        held_out.append(set(record.subset("val").groups.tolist()))
    assert held_out[0] == held_out[1]
    assert len(held_out[0]) == 10
    # The ten smallest by hash, computed here with hashlib alone.
    digest = {
        f"P{i}": hashlib.blake2b(f"P{i}".encode(), digest_size=8, person=b"validation").digest()
        for i in range(100)
    }
    assert held_out[0] == set(sorted(digest, key=digest.get)[:10])


def change(rows, **values):
    return {**rows, "train": [{**rows["train"][0], **values}, *rows["train"][1:]]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            change(DERM, malignancy="unsure"),
            r"train\.csv, line 2: expected a malignancy .*'unsure'",
        ),
        (change(DERM, main_class_1=" "), r"line 2: expected a value in .*\['main_class_1'\]"),
        (change(DERM, label="bcc"), r"the label 'bcc' lies under both .*'compound'.*'k'"),
        (change(DERM, image_id="ISIC_3"), r"ids must be unique, .* \['ISIC_3'\]"),
        (
            {**DERM, "test": [{"image_id": "1", "label": "acb"}]},
            r"test\.csv must have the column\(s\) \['patient_id', 'super_class'",
        ),
    ],
)
def test_malformed_derm_tables_are_named_with_the_line(tmp_path, rows, message):
    write_derm(tmp_path, rows, places={})
    with pytest.raises(ValueError, match=message):
        load_derm12345(tmp_path, check="none")


def test_a_derm_table_cut_off_in_the_middle_of_a_row_is_refused(tmp_path):
    write_derm(tmp_path)
    file = tmp_path / "derm12345_metadata_test.csv"
    file.write_text(file.read_text()[:-30])
    with pytest.raises(
        ValueError, match=r"test\.csv, line 3: expected 11 values, .*fetch it again"
    ):
        load_derm12345(tmp_path)


def test_missing_derm_files_are_named_with_their_place(tmp_path):
    write_derm(tmp_path)
    (tmp_path / "derm12345_train_part_2/mel/ISIC_3.jpg").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"1 of 6 .*train_part_1/mel/ISIC_3\.jpg and is not"
    ):
        load_derm12345(tmp_path)
    (tmp_path / "derm12345_metadata_test.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected a file at .*metadata_test\.csv"):
        load_derm12345(tmp_path)
    with pytest.raises(ValueError, match=r"val_fraction must be at least 0 and below 1, got 1.0"):
        load_derm12345(tmp_path, val_fraction=1.0)


# Grocery Store ---------------------------------------------------------------------------------

GROCERY = {
    "train": [
        ("train/Fruit/Apple/Pink-Lady/a.jpg", 0, 0),
        ("train/Vegetables/Brown-Cap-Mushroom/b.jpg", 2, 2),
    ],
    "val": [("val/Fruit/Banana/c.jpg", 1, 1)],
    "test": [("test/Vegetables/Mushroom/Brown-Cap-Mushroom/d.jpg", 2, 2)],
}


def write_grocery(root):
    names = [
        ("Pink-Lady", "Apple", "Fruit"),
        ("Banana", "Banana", "Fruit"),
        ("Brown-Cap-Mushroom", "Mushroom", "Vegetables"),
        ("Oatly", "Oat-Milk", "Packages"),
    ]
    write_csv(
        root / "classes.csv",
        [
            {
                "Class Name (str)": fine,
                "Class ID (int)": i,
                "Coarse Class Name (str)": coarse,
                "Coarse Class ID (int)": i,
                "Iconic Image Path (str)": f"/iconic-images-and-descriptions/{top}/{coarse}/i.jpg",
                "Product Description Path (str)": "",
            }
            for i, (fine, coarse, top) in enumerate(names)
        ],
    )
    for split, rows in GROCERY.items():
        (root / f"{split}.txt").write_text("".join(f"{i}, {f}, {c}\n" for i, f, c in rows))
        for image, *_ in rows:
            save_image(root / image)


def test_groceries_are_read_from_the_official_files(tmp_path):
    (tmp_path / "dataset").mkdir()
    write_grocery(tmp_path / "dataset")
    record = load_grocery_store(tmp_path)
    tree = record.taxonomy
    assert record.ids.tolist() == [row[0] for rows in GROCERY.values() for row in rows]
    assert record.counts == {"train": 2, "val": 1, "test": 1}
    # One class in two folders is one leaf, and a class without images keeps its place.
    assert [tree.path(label) for label in record.labels] == [
        ("Fruit", "Apple", "Pink-Lady"),
        ("Vegetables", "Mushroom", "Brown-Cap-Mushroom"),
        ("Fruit", "Banana", "Banana"),
        ("Vegetables", "Mushroom", "Brown-Cap-Mushroom"),
    ]
    assert tree.path("Oatly") == ("Packages", "Oat-Milk", "Oatly")


def test_groceries_reproduce_the_published_counts(assets):
    record = load_grocery_store(assets / "grocery_store")
    assert record.counts == {"train": 2640, "val": 296, "test": 2485}
    tree = record.taxonomy
    assert [len(tree.level_nodes(level)) for level in ("top", "coarse", "fine")] == [3, 43, 81]
    assert tree.n_branching == 16
    expected = pd.read_csv(assets / "taxonomies" / "grocery_taxonomy.csv")
    for split in ("train", "val", "test"):
        labels, counts = np.unique(record.subset(split).labels, return_counts=True)
        found = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        for row in expected.itertuples():
            leaf = tree.label(tree.node((row.top, row.coarse, row.fine)))
            assert found.get(leaf, 0) == getattr(row, f"n_{split}")
    assert record.open(0).mode == "RGB"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("val.txt", "val/Fruit/Banana/c.jpg, 1\n", r"val\.txt, line 1: expected '<split>/<group>"),
        ("val.txt", "val/Fruit/Banana/c.jpg, 77, 1\n", r"val\.txt, line 1: expected .*fine id"),
        (
            "val.txt",
            "val/Packages/Banana/Apple/c.jpg, 0, 0\n",
            r"'Pink-Lady'\) lies under both 'Fruit' and 'Packages'",
        ),
        ("classes.csv", "Class Name (str)\nBanana\n", r"classes\.csv must have the column\(s\)"),
        ("classes.csv", "", r"classes\.csv must have the column\(s\)"),
    ],
)
def test_malformed_grocery_lists_are_named_with_the_line(tmp_path, file, text, message):
    write_grocery(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_grocery_store(tmp_path)

"""A user's own images from folders and tables, the record they come in, and coarser labels."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from skh2edl import Taxonomy
from skh2edl.datasets import LabelledImages, coarsen_labels, load_image_folder, load_table


def save_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 60)).save(path)


# Folders and tables ----------------------------------------------------------------------------


def test_nested_folders_are_the_taxonomy(tmp_path):
    for place in ("cat/lion/1.JPG", "cat/lynx/2.png", "cat/3.png", "dog/4.bmp", "5.png"):
        save_image(tmp_path / place)
    (tmp_path / "bird").mkdir()
    save_image(tmp_path / ".cache" / "6.png")
    save_image(tmp_path / "dog" / "._4.png")
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    (tmp_path / "dog" / "loop").symlink_to(tmp_path, target_is_directory=True)
    record = load_image_folder(tmp_path, level_names=("kind", "species"))
    assert dict(zip(record.ids.tolist(), record.labels.tolist(), strict=True)) == {
        "5.png": "root",
        "cat/3.png": "cat",
        "cat/lion/1.JPG": "lion",
        "cat/lynx/2.png": "lynx",
        "dog/4.bmp": "dog",
    }
    assert sorted(record.taxonomy.leaves) == ["bird", "dog", "lion", "lynx"]
    assert record.taxonomy == Taxonomy.from_folder(tmp_path, level_names=("kind", "species"))
    assert record.counts == {"train": 5, "val": 0, "test": 0}


def test_folders_named_after_splits_are_the_split(tmp_path):
    for place in ("train/cat/1.png", "Valid/cat/2.png", "test/dog/3.png"):
        save_image(tmp_path / place)
    record = load_image_folder(tmp_path)
    assert dict(zip(record.ids.tolist(), record.split.tolist(), strict=True)) == {
        "Valid/cat/2.png": "val",
        "test/dog/3.png": "test",
        "train/cat/1.png": "train",
    }
    assert record.taxonomy.leaves == ("cat", "dog")


def test_images_without_folders_of_their_classes_say_so(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"1 image\(s\) lie in .* itself.*class.1\.png"):
        load_image_folder(tmp_path)


def test_a_folder_without_images_says_so(tmp_path):
    (tmp_path / "cat").mkdir()
    with pytest.raises(FileNotFoundError, match=r"expected images in .*found none in 2 folder"):
        load_image_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="root must be a folder of images"):
        load_image_folder(tmp_path / "nowhere")
    (tmp_path / "cat" / "1.png").touch()
    (tmp_path / "dog").mkdir()
    with pytest.raises(FileNotFoundError, match=r"1 of 1 images .*1\.png and is empty"):
        load_image_folder(tmp_path)


TABLE = [
    {"image": "a.png", "kind": "cat", "species": "lion", "part": "train", "animal": "leo"},
    {"image": "b.png", "kind": "cat", "species": "", "part": "val", "animal": "leo"},
    {"image": "c.png", "kind": "dog", "species": "wolf", "part": "test", "animal": "ysengrin"},
    {"image": "d.png", "kind": "", "species": "", "part": "train", "animal": "nobody"},
]


@pytest.mark.parametrize("source", ["file", "frame"])
def test_a_table_is_read_with_ancestors_splits_and_groups(tmp_path, source):
    pd.DataFrame(TABLE).to_csv(tmp_path / "animals.csv", index=False)
    for row in TABLE:
        save_image(tmp_path / row["image"])
    table = tmp_path / "animals.csv"
    record = load_table(
        table if source == "file" else pd.read_csv(table),
        label_columns=["kind", "species"],
        split_column="part",
        group_column="animal",
        root=tmp_path,
    )
    assert record.labels.tolist() == ["lion", "cat", "wolf", "root"]
    assert record.split.tolist() == ["train", "val", "test", "train"]
    assert record.groups.tolist() == ["leo", "leo", "ysengrin", "nobody"]
    assert record.ids.tolist() == ["a.png", "b.png", "c.png", "d.png"]
    assert record.taxonomy.level_names == ("kind", "species")
    assert record.open(2).size == (40, 60)


def test_files_of_a_table_are_beside_it_unless_a_root_is_given(tmp_path):
    pd.DataFrame(TABLE).to_csv(tmp_path / "animals.csv", index=False)
    beside = load_table(tmp_path / "animals.csv", label_columns=["kind"], check="none")
    assert beside.images[0] == str(tmp_path / "a.png")
    with pytest.raises(FileNotFoundError, match=r"4 of 4 .*elsewhere/a\.png and is not there"):
        load_table(tmp_path / "animals.csv", label_columns=["kind"], root=tmp_path / "elsewhere")


def test_a_table_with_one_column_takes_labels_of_a_given_taxonomy():
    tree = Taxonomy.from_paths([("cat", "lion"), ("cat", "lynx"), ("dog", "wolf")])
    frame = pd.DataFrame(
        {"image": list("abcd"), "label": pd.Series(["lynx", "cat", None, pd.NA], dtype=object)}
    )
    record = load_table(frame, label_columns="label", taxonomy=tree, check="none")
    assert record.labels.tolist() == ["lynx", "cat", "root", "root"]


def test_a_column_that_is_always_empty_is_no_level():
    frame = pd.DataFrame({"image": ["a", "b"], "kind": ["cat", "dog"], "species": [None, None]})
    record = load_table(frame, label_columns=["kind", "species"], check="none")
    assert record.taxonomy.level_names == ("kind",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_columns": ["genus"]}, r"must have the column\(s\) \['genus'\]"),
        (
            {"image_column": "file"},
            r"the column\(s\) \['file'\].*with image_column=\.\.\.",
        ),
        ({"label_columns": None}, r"such as label_columns=.*the table has the columns \["),
        ({"label_columns": []}, "label_columns must name at least one column"),
        ({"split_column": "animal"}, r"split may hold 'train', 'val', 'test' only, got \['leo'"),
        ({"id_column": "animal"}, r"ids must be unique, got 1 more than once, first \['leo'\]"),
    ],
)
@pytest.mark.parametrize("source", ["file", "frame"])
def test_wrong_tables_are_refused(tmp_path, change, message, source):
    pd.DataFrame(TABLE).to_csv(tmp_path / "t.csv", index=False)
    table = tmp_path / "t.csv" if source == "file" else pd.DataFrame(TABLE)
    with pytest.raises(ValueError, match=message):
        load_table(table, **{"label_columns": ["kind"], "check": "none", **change})


def test_tables_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(TypeError, match="path of a CSV file or a pandas DataFrame, got list"):
        load_table(TABLE, label_columns=["kind"])
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*t\.csv"):
        load_table(tmp_path / "t.csv", label_columns=["kind"])
    (tmp_path / "t.csv").write_text("image,kind\n")
    with pytest.raises(ValueError, match=r"t\.csv has a header and no rows"):
        load_table(tmp_path / "t.csv", label_columns=["kind"])
    frame = pd.DataFrame({"image": ["a", ""], "kind": ["cat", "dog"]})
    with pytest.raises(ValueError, match="row 2 has no file in the column 'image'"):
        load_table(frame, label_columns=["kind"], check="none")


# The record ------------------------------------------------------------------------------------


@pytest.fixture
def zoo():
    tree = Taxonomy.from_paths([("cat", "lion"), ("cat", "lynx"), ("dog", "wolf")])
    return LabelledImages(
        name="zoo",
        images=np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8),
        labels=np.array(["lion", "cat", "wolf", "lynx"]),
        taxonomy=tree,
        split=np.array(["train", "val", "test", "train"]),
        ids=np.array(["a", "b", "c", "d"]),
        crop=(1, 2, 0, 3),
        info={"age": np.array([1, 2, 3, 4])},
    )


def test_a_subset_keeps_rows_together(zoo):
    part = zoo.subset("train")
    assert part.ids.tolist() == ["a", "d"]
    assert part.labels.tolist() == ["lion", "lynx"]
    assert part.info["age"].tolist() == [1, 4]
    assert (part.images == zoo.images[[0, 3]]).all()
    assert part.taxonomy is zoo.taxonomy
    assert zoo.subset("test", "train").ids.tolist() == ["a", "c", "d"]
    assert zoo.select(slice(1, 3)).ids.tolist() == ["b", "c"]
    with pytest.raises(ValueError, match=r"subset takes one or more of .* got \('dev',\)"):
        zoo.subset("dev")
    with pytest.raises(ValueError, match=r"subset takes one or more of .* got \(\)"):
        zoo.subset()


def test_a_record_cannot_be_changed(zoo):
    with pytest.raises(ValueError, match="read-only"):
        zoo.labels[0] = "lynx"
    with pytest.raises(ValueError, match="read-only"):
        zoo.images[0, 0, 0] = 1
    with pytest.raises(TypeError, match="does not support item assignment"):
        zoo.info["age"] = np.zeros(4)
    with pytest.raises(AttributeError, match="cannot assign to field"):
        zoo.labels = zoo.ids


def test_arrays_are_opened_and_cropped_too(zoo):
    assert (np.asarray(zoo.open(1)) == zoo.images[1][2:5, 1:]).all()


def test_pixels_are_read_cropped_by_classifiers_too(zoo):
    np.testing.assert_array_equal(
        np.asarray(zoo.source.read(1))[..., 0], np.asarray(zoo.open(1).convert("L"))
    )
    assert zoo.source.size == zoo.open(1).size[::-1]


def test_pixels_have_no_files_to_crop(zoo, tmp_path):
    with pytest.raises(TypeError, match="copies image files, and this record holds pixels"):
        zoo.crop_files(tmp_path)


def test_entries_must_match_the_images(zoo):
    for key, value in [("labels", ["lion"]), ("ids", ["a"] * 5), ("split", "train")]:
        fields = {
            "name": "zoo",
            "images": zoo.images,
            "labels": zoo.labels,
            "taxonomy": zoo.taxonomy,
            "split": zoo.split,
            "ids": zoo.ids,
            key: value,
        }
        with pytest.raises(ValueError, match=f"{key} must have one entry for each of the 4 images"):
            LabelledImages(**fields)


def test_a_new_split_holds_groups_together_and_meets_its_fractions():
    n = 6000
    record = LabelledImages(
        name="many",
        images=np.zeros((n, 1, 1), dtype=np.uint8),
        labels=np.repeat("a", n),
        taxonomy=Taxonomy.flat(["a", "b"]),
        split=np.repeat("train", n),
        ids=np.arange(n),
        groups=np.arange(n) // 2,
    )
    new = record.resplit(val=0.1, test=0.3)
    assert len(set(zip(new.groups.tolist(), new.split.tolist(), strict=True))) == n // 2
    # Three standard deviations of a binomial fraction of 3000 groups are 0.025 at most.
    assert new.counts["val"] / n == pytest.approx(0.1, abs=0.025)
    assert new.counts["test"] / n == pytest.approx(0.3, abs=0.025)
    half = record.select(np.arange(0, n, 2)).resplit(val=0.1, test=0.3)
    assert (half.split == new.split[::2]).all()
    with pytest.raises(ValueError, match=r"sum of at most 1, got 0.6 and 0.6"):
        record.resplit(val=0.6, test=0.6)


# Coarser labels --------------------------------------------------------------------------------

TREE = Taxonomy.from_paths(
    [("cat", "big", "lion"), ("cat", "big", "tiger"), ("cat", "lynx"), ("dog", "wild", "wolf")],
    level_names=("kind", "size", "species"),
)


def test_coarsening_is_by_the_hash_of_the_id_alone():
    ids = [f"image-{i}" for i in range(2000)]
    coarse = coarsen_labels(["lion"] * 2000, ids, 0.25, "kind", TREE)

    # The rule written with hashlib and integers: chosen when the hash lies in the lowest quarter.
    def chosen(name):
        digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"coarsen").digest()
        return int.from_bytes(digest, "big") < 2**62

    assert coarse.tolist() == ["cat" if chosen(name) else "lion" for name in ids]
    assert np.mean(coarse == "cat") == pytest.approx(0.25, abs=0.03)
    backwards = coarsen_labels(["lion"] * 2000, ids[::-1], 0.25, "kind", TREE)
    assert (backwards[::-1] == coarse).all()


@given(
    ids=st.lists(st.text(max_size=8), unique=True, max_size=40),
    fractions=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
)
def test_a_smaller_fraction_is_inside_a_larger_one(ids, fractions):
    less, more = (
        coarsen_labels(["wolf"] * len(ids), ids, f, "kind", TREE) == "dog" for f in fractions
    )
    assert not (less & ~more).any()


def test_coarsening_all_or_nothing():
    labels = ["lion", "lynx", "cat", "wolf", "root"]
    ids = list("abcde")
    assert coarsen_labels(labels, ids, 0, "kind", TREE).tolist() == labels
    # A leaf above the level, and a label that stops above it, stay as they are.
    size = coarsen_labels(labels, ids, 1, "size", TREE).tolist()
    assert size == ["big", "lynx", "cat", "wild", "root"]
    assert coarsen_labels(labels, ids, 1, 0, TREE).tolist() == ["root"] * 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fraction": 1.5}, "fraction must be between 0 and 1, got 1.5"),
        ({"ids": ["a"]}, "labels and ids must have the same length, got 2 and 1"),
        ({"level": "genus"}, "no level 'genus'"),
        ({"labels": ["lion", "unicorn"]}, "unicorn"),
    ],
)
def test_wrong_coarsening_is_refused(change, message):
    arguments = {
        "labels": ["lion", "wolf"],
        "ids": ["a", "b"],
        "fraction": 0.5,
        "level": "kind",
        "taxonomy": TREE,
    }
    with pytest.raises(ValueError, match=message):
        coarsen_labels(**{**arguments, **change})

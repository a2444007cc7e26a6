"""A clinic's archive from start to end, with patients kept together throughout.

There are three photographs of each lesion and one or two lesions of each patient. Half of the
training patients are labelled only by the group of the diagnosis. The steps: split by patient,
train, calibrate, fuse the photographs of a lesion, guarantee an accuracy, write a report. The
lesions are drawn: nothing here says anything about skin, and this is not a medical device.
"""

import argparse

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

from skh2edl import (
    CalibratedTreeClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    ImageFeatureExtractor,
    Recipe,
    Taxonomy,
    fuse_subjects,
)
from skh2edl.datasets import LabelledImages, coarsen_labels
from skh2edl.report import EvaluationReport
from skh2edl.scorers import make_level_scorer

TREE = Taxonomy.from_nested(
    {
        "pigmented": {"benign": ["nevus", "lentigo"], "malignant": ["melanoma"]},
        "vascular": ["angioma", "hematoma"],
        "scaly": ["keratosis", "eczema"],
    },
    level_names=("group", "kind", "diagnosis"),
)
# Colour, radius, raggedness of the border, speckles.
LOOKS = {
    "nevus": ((110, 70, 50), 6, 0.05, 0.0),
    "lentigo": ((150, 105, 70), 9, 0.12, 0.0),
    "melanoma": ((90, 60, 55), 9, 0.30, 0.4),
    "angioma": ((190, 50, 60), 5, 0.05, 0.0),
    "hematoma": ((130, 50, 90), 9, 0.20, 0.1),
    "keratosis": ((190, 150, 110), 8, 0.15, 0.8),
    "eczema": ((210, 125, 115), 11, 0.35, 0.5),
}


def draw_lesion(rng, label, skin):
    """Return three photographs of 32 x 32 pixels of one blob, each shifted and lit differently."""
    colour, radius, ragged, speckles = LOOKS[label]
    colour = np.array(colour) + rng.normal(scale=20, size=3)
    radius = radius * rng.uniform(0.7, 1.3)
    waves = [(turns, rng.normal(), rng.uniform(0, 6.3)) for turns in (2, 3, 5, 7)]
    spots = 60 * speckles * rng.normal(size=(32, 32, 1))
    photographs = []
    for _ in range(3):
        y, x = np.mgrid[:32, :32] - 15.5 + rng.normal(scale=1.5, size=(2, 1, 1))
        edge = radius
        for turns, height, start in waves:
            edge = edge * (1 + ragged * height * np.cos(turns * np.arctan2(y, x) + start))
        inside = 1 / (1 + np.exp(2 * (np.hypot(x, y) - edge)))
        picture = skin + inside[..., None] * (colour + spots - skin)
        picture = picture * rng.uniform(0.8, 1.2) + rng.normal(scale=8, size=(32, 32, 3))
        photographs.append(picture.clip(0, 255).astype(np.uint8))
    return photographs


def draw_archive(n_patients, rng):
    """Return photographs with labels, and the patient and the lesion of each."""
    images, labels, patients, lesions = [], [], [], []
    for patient in range(n_patients):
        skin = np.array([225, 185, 165]) * rng.uniform(0.7, 1.1)
        for lesion in range(rng.integers(1, 3)):
            label = rng.choice(list(LOOKS))
            images += draw_lesion(rng, label, skin)
            labels += [label] * 3
            patients += [f"patient {patient}"] * 3
            lesions += [f"patient {patient}, lesion {lesion}"] * 3
    return LabelledImages(
        name="archive",
        images=np.array(images),
        labels=labels,
        taxonomy=TREE,
        split=["train"] * len(images),
        ids=[f"photograph {number}" for number in range(len(images))],
        groups=patients,
        info={"lesion": np.array(lesions)},
    )


class OfLesions(ClassifierMixin, BaseEstimator):
    """Classify lesions with a classifier of photographs: a sample is an array of photographs."""

    def __init__(self, classifier, dependence):
        self.classifier = classifier
        self.dependence = dependence

    def fit(self, X, y):
        raise NotImplementedError("fit the classifier of photographs")

    def __sklearn_is_fitted__(self):
        return True

    @property
    def classes_(self):
        return self.classifier.classes_

    def predict_hyper_opinion(self, X):
        lesion = np.repeat(np.arange(len(X)), [len(photographs) for photographs in X])
        opinion = self.classifier.predict_hyper_opinion(np.concatenate(X))
        return fuse_subjects(opinion, lesion, self.dependence)

    def predict_proba(self, X):
        return self.predict_hyper_opinion(X).leaf_probability[:, TREE.leaf_order]


def lesions_of(part, *, one_of_each_patient=False):
    """Return the photographs, the label and the name of each lesion."""
    names, first = np.unique(part.info["lesion"], return_index=True)
    if one_of_each_patient:
        _, chosen = np.unique(part.groups[first], return_index=True)
        names, first = names[chosen], first[chosen]
    pictures = [part.images[part.info["lesion"] == name] for name in names]
    return pictures, part.labels[first], names


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--patients", type=int, default=120)
parser.add_argument("--epochs", type=int, default=8)
options = parser.parse_args()
archive = draw_archive(options.patients, np.random.default_rng(0))
print(f"{len(archive)} photographs of {options.patients} patients")

print("\n1. Why patients are kept together: the same model, two splits")
features = ImageFeatureExtractor("test_resnet", weights=None, image_size=32, n_workers=0)
X = features.fit_transform(archive.images)
scorer = make_level_scorer("accuracy", "diagnosis", TREE)
probe = H2EDLClassifier(TREE, backbone=None, random_state=0)
for name, cv, groups in [
    ("photographs at random", KFold(3, shuffle=True, random_state=0), None),
    ("whole patients", GroupKFold(3), archive.groups),
]:
    scores = cross_val_score(probe, X, archive.labels, groups=groups, cv=cv, scoring=scorer)
    print(f"   split by {name}: {scores.mean():.2f} of the diagnoses right")

print("\n2. Train on some patients; others choose the epoch")
archive = archive.resplit(val=0.15, test=0.5)  # by a hash of the patient
train, val, rest = (archive.subset(name) for name in ("train", "val", "test"))
# Of the remaining patients, one half sets the hedge and the other tests it.
_, patient = np.unique(rest.groups, return_inverse=True)
held, test = rest.select(patient % 2 == 0), rest.select(patient % 2 == 1)
# Half of the training patients are labelled only by group, those for calibration down to the
# diagnosis.
labels = coarsen_labels(train.labels, train.groups, 0.5, "group", TREE)
n_coarse = np.count_nonzero(~np.isin(labels, TREE.leaves))
print(f"   {len(train)} photographs, {n_coarse} of them labelled by group only")
clf = H2EDLClassifier(
    TREE,
    backbone="test_resnet",  # for photographs: resnet50, with its pretrained weights
    weights=None,
    image_size=32,
    max_epochs=options.epochs,
    batch_size=32,
    learning_rate=1e-2,
    recipe=Recipe(backbone_lr_scale=1.0, augmentation="none"),
    n_workers=0,
    random_state=0,
)
clf.fit(train.images, labels, X_val=val.images, y_val=val.labels)
print(f"   kept: epoch {clf.best_epoch_} of {clf.n_iter_}")

print("\n3. Calibrate the evidence on the validation patients")
calibrated = CalibratedTreeClassifier(FrozenEstimator(clf)).fit(val.images, val.labels)
print(f"   evidence times {calibrated.evidence_scale_:.2f}")

print("\n4. One opinion on each lesion, and a guarantee calibrated on other patients")
of_lesions = OfLesions(calibrated, dependence=0.5)
hedged = HedgedClassifier(FrozenEstimator(of_lesions), target_accuracy=0.9, taxonomy=TREE)
# One lesion of each patient: two of one patient are not two independent samples.
pictures, labels, _ = lesions_of(held, one_of_each_patient=True)
hedged.fit(pictures, labels)
pictures, labels, names = lesions_of(test)
opinion = of_lesions.predict_hyper_opinion(pictures)
predictions = hedged.predict(pictures)
for depth, n_lesions in {
    "a diagnosis": np.isin(predictions, TREE.leaves).sum(),
    "a group or a kind only": (~np.isin(predictions, (*TREE.leaves, "root"))).sum(),
    "no prediction below the root": (predictions == "root").sum(),
}.items():
    print(f"   {n_lesions:3} of {len(predictions)} lesions: {depth}")
print(f"   right: {hedged.score(pictures, labels):.0%} (guaranteed: 90%)")
spread = np.sqrt(0.9 * 0.1 * (1 / hedged.n_calibration_ + 1 / len(labels)))
print(f"   {hedged.n_calibration_} lesions set the hedge and {len(labels)} test it:", end=" ")
print(f"the standard deviation is {spread:.0%}")
vaguest = opinion.nonspecificity.argmax()
print(f"   {names[vaguest]}: {predictions[vaguest]}. {opinion.explain(vaguest)}")

print("\n5. The report")
report = EvaluationReport.from_predictions(
    labels,
    opinion.leaf_probability,
    TREE,
    opinion=opinion,
    classes=TREE.leaves,
    images=[photographs[0] for photographs in pictures],
    names=names.tolist(),
    title="Lesions of test patients",
)
report.write("report.html")
for question in report.questions:
    print(f"   {question.question} {question.answer}")

"""
A table of images
=================

A table with a column for each rank, some cells of which are empty, a cache of features, and splits
that keep subjects together::

    image,script,kind,character,subject
    0.png,Common,digit,DIGIT SEVEN,17
    1.png,Common,,,18              <- a label that stops at the script
"""

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.model_selection import GroupKFold, KFold, cross_validate

from skh2edl import H2EDLClassifier, Hardware
from skh2edl.datasets import load_table, make_glyphs
from skh2edl.scorers import make_level_scorer

RANKS = ["script", "kind", "character"]

# Draw images and write a table of them; skip this if you have your own.
glyphs = make_glyphs(2000, scripts=("Common", "Georgian"), n_views=2, random_state=0)
glyphs = glyphs.select(np.isin(glyphs.info["character"], list("0123აბ&@")))
made = Path(tempfile.mkdtemp())
(made / "pictures").mkdir()
with open(made / "table.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["image", *RANKS, "subject"])
    for number, (pixels, label) in enumerate(zip(glyphs.images, glyphs.labels, strict=True)):
        Image.fromarray(pixels).save(made / f"pictures/{number}.png")
        ranks = glyphs.taxonomy.path(label)
        if number % 5 == 0:
            ranks = (ranks[0], "", "")
        writer.writerow([f"pictures/{number}.png", *ranks, glyphs.groups[number]])

table = load_table(made / "table.csv", label_columns=RANKS, group_column="subject")
tree = table.taxonomy
print(table)
print("levels:", tree.level_names)
print("first labels:", table.labels[:3].tolist())

# %%
# The backbone is frozen, so it reads each image once: its features are kept in the folder
# "features", also for the next run. For photographs use backbone="resnet50" and none of the options
# of the toy.
clf = H2EDLClassifier(
    tree,
    backbone="test_resnet",
    weights=None,
    image_size=32,
    finetune="head",
    hardware=Hardware(memory=str(made / "features"), n_workers=0),
    random_state=0,
)
scoring = {rank: make_level_scorer("accuracy", rank, tree) for rank in RANKS}

# %%
# Each subject has two pictures. If one of them is in training and the other in the test, the score
# is of a task that nobody has; splits by subject give the honest one.
splits = {
    "picture": (KFold(3, shuffle=True, random_state=0), None),
    "subject": (GroupKFold(3), table.groups),
}
scores = {}
for name, (cv, groups) in splits.items():
    found = cross_validate(clf, table.images, table.labels, groups=groups, scoring=scoring, cv=cv)
    scores[name] = [found[f"test_{rank}"].mean() for rank in RANKS]
for rank, score in zip(RANKS, scores["subject"], strict=True):
    print(f"right about the {rank}: {score:.2f}")

for place, (name, values) in enumerate(scores.items()):
    plt.bar(np.arange(3) + 0.4 * place, values, 0.38, label=f"split by {name}")
plt.xticks(np.arange(3) + 0.2, RANKS)
plt.ylabel("accuracy")
plt.legend()
plt.show()

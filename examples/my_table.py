"""A table of images with a column for each rank, some of them empty, and a cache of features.

image,script,kind,character,subject
0.png,Common,digit,DIGIT SEVEN,17
1.png,Common,,,18              <- a label that stops at the script
"""

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.model_selection import GroupKFold, cross_validate

from skh2edl import H2EDLClassifier
from skh2edl.datasets import load_table, make_glyphs
from skh2edl.scorers import make_level_scorer

RANKS = ["script", "kind", "character"]

# Draw images and write a table of them; skip this if you have your own.
glyphs = make_glyphs(2000, scripts=("Common", "Georgian"), n_views=2, random_state=0)
glyphs = glyphs.select(np.isin(glyphs.info["character"], list("0123აბ&@")))
Path("pictures").mkdir(exist_ok=True)
with open("table.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["image", *RANKS, "subject"])
    for number, (pixels, label) in enumerate(zip(glyphs.images, glyphs.labels, strict=True)):
        Image.fromarray(pixels).save(f"pictures/{number}.png")
        ranks = glyphs.taxonomy.path(label)
        if number % 5 == 0:
            ranks = (ranks[0], "", "")
        writer.writerow([f"pictures/{number}.png", *ranks, glyphs.groups[number]])

table = load_table("table.csv", label_columns=RANKS, group_column="subject")
tree = table.taxonomy
print(table)
print("levels:", tree.level_names)
print("first labels:", table.labels[:3].tolist())

# The backbone is frozen, so it reads each image once: its features are kept in the folder
# "features", also for the next run. For photographs use backbone="resnet50" and none of the options
# of the toy.
clf = H2EDLClassifier(
    tree,
    backbone="test_resnet",
    weights=None,
    image_size=32,
    finetune="head",
    memory="features",
    n_workers=0,
    random_state=0,
)
scoring = {rank: make_level_scorer("accuracy", rank, tree) for rank in RANKS}
# Images of one subject are never on both sides of a split.
scores = cross_validate(
    clf, table.images, table.labels, groups=table.groups, scoring=scoring, cv=GroupKFold(3)
)
for rank in RANKS:
    print(f"right about the {rank}: {scores[f'test_{rank}'].mean():.2f}")

"""
Several photographs of one subject
==================================

Opinions on several photographs are fused into one. Photographs of one subject are neither
independent nor identical: `dependence` is the correlation between them. It is chosen on validation
subjects, by the likelihood of their labels.
"""

import matplotlib.pyplot as plt
import numpy as np

from skh2edl import H2EDLClassifier, fuse_subjects
from skh2edl.datasets import make_glyphs

# Five pictures of each subject, each with its own blur, occlusion and noise.
glyphs = make_glyphs(
    4000, scripts=("Common", "Georgian"), image_size=16, n_views=5, noise=(0.1, 0.4), random_state=0
)
glyphs = glyphs.select(np.isin(glyphs.info["character"], list("0123456789აბგდეზ")))
tree = glyphs.taxonomy.restrict(np.unique(glyphs.labels))


def features(images):
    """Return the pixels: enough for this toy. Use ImageFeatureExtractor for photographs."""
    return images.reshape(len(images), -1) / 255


def subjects_of(part):
    """Return the label of each subject, in sorted order of the subjects."""
    _, first = np.unique(part.groups, return_index=True)
    return part.labels[first]


def mean_nll(opinion, labels):
    """Return the mean of -log P(label)."""
    leaf = [tree.leaves.index(label) for label in labels]
    return -opinion.log_leaf_probability[np.arange(len(leaf)), leaf].mean()


def fraction_right(opinion, labels):
    best = np.array(tree.leaves)[opinion.leaf_probability.argmax(axis=1)]
    return np.mean(best == labels)


train, val, test = (glyphs.subset(name) for name in ("train", "val", "test"))
clf = H2EDLClassifier(tree, backbone=None, random_state=0)
clf.fit(features(train.images), train.labels)
by_picture = {part: clf.predict_hyper_opinion(features(part.images)) for part in (val, test)}

# %%
# The dependence that suits the validation subjects best is kept.
print("dependence   NLL of validation subjects")
scores = {}
for dependence in (0, 0.1, 0.3, 1):
    fused = fuse_subjects(by_picture[val], val.groups, dependence)
    scores[dependence] = mean_nll(fused, subjects_of(val))
    print(f"{dependence:10}   {scores[dependence]:.4f}")
best = min(scores, key=scores.get)

fused = fuse_subjects(by_picture[test], test.groups, best)
print(f"one picture:   {fraction_right(by_picture[test], test.labels):.1%} right")
print(f"five together: {fraction_right(fused, subjects_of(test)):.1%} right (dependence {best})")

picture = by_picture[test].nonspecificity.argmax()
subject = np.flatnonzero(fused.groups == test.groups[picture])[0]
print("the vaguest picture alone:", by_picture[test].explain(picture))
print("with the others:", fused.explain(subject))

figure, axes = plt.subplots(1, 5, figsize=(8, 2))
for ax, row in zip(axes, np.flatnonzero(test.groups == test.groups[picture]), strict=True):
    ax.imshow(test.images[row], cmap="gray")
    ax.set_title(f"U = {by_picture[test].nonspecificity[row]:.2f}")
    ax.axis("off")
figure.suptitle(f"fused: U = {fused.nonspecificity[subject]:.2f}")
plt.show()

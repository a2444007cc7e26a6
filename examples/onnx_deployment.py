"""
Deployment with ONNX
====================

One ONNX file, hedge included, for a runtime without torch and without this package.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skh2edl import H2EDLClassifier, HedgedClassifier, Taxonomy

# %%
# Where the model is made

tree = Taxonomy.from_nested(
    {"loop": ["0", "6", "8", "9"], "bow": ["2", "3", "5"], "straight": ["1", "4", "7"]}
)
X, y = load_digits(return_X_y=True)
X = (X + np.random.default_rng(0).normal(scale=5, size=X.shape)).astype(np.float32)
X_train, X_rest, y_train, y_rest = train_test_split(X, y.astype(str), random_state=0)
X_held, X_new, y_held, y_new = train_test_split(X_rest, y_rest, random_state=0)
clf = H2EDLClassifier(tree, backbone=None, random_state=0).fit(X_train, y_train)
hedged = HedgedClassifier(FrozenEstimator(clf), target_accuracy=0.95).fit(X_held, y_held)
made = Path(tempfile.mkdtemp())
hedged.export_onnx(made / "digits.onnx")

# %%
# Where it is used: numpy and onnxruntime only

session = onnxruntime.InferenceSession(made / "digits.onnx")
nodes = np.array(json.loads(session.get_modelmeta().custom_metadata_map["nodes"]))
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(None, {"features": X_new}), strict=True))
for name, values in outputs.items():
    print(f"{name:18} {values.shape}")

predictions = nodes[outputs["prediction"]].tolist()
print("first predictions:", predictions[:8])
print("the same as in Python:", np.mean(np.array(predictions) == hedged.predict(X_new)))
difference = np.abs(outputs["class_probability"] - clf.predict_proba(X_new)).max()
print(f"largest difference of a probability: {difference:.0e}")

figure, axes = plt.subplots(1, 8, figsize=(9, 1.6))
for ax, pixels, prediction in zip(axes, X_new, predictions, strict=False):
    ax.imshow(pixels.reshape(8, 8), cmap="gray_r")
    ax.set_title(prediction.split("/")[-1])
    ax.axis("off")
plt.show()

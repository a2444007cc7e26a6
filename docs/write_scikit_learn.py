"""Write scikit_learn.md from the cases of the tests: ``python docs/write_scikit_learn.py``."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "scikit_learn.md"
CASES = DOCS.parent / "tests" / "contract" / "sklearn_cases.py"
HEAD = """# With scikit-learn's tools

Every classifier passes scikit-learn's own estimator checks. The tables below say what its tools do
with a classifier that has a taxonomy, with labels that may be ancestors and with a leaf that no
sample has. Each row is a test.

Some tools encode y: they replace labels by integers, which a taxonomy does not know. Those are
refused, also where the leaves are integers themselves, because the classes would be mixed up in
silence. `DecodingClassifier` gives the labels back inside such a tool:

```python
ours = DecodingClassifier(H2EDLClassifier(tree, backbone=None), labels=np.unique(y))
vote = VotingClassifier([("tree", ours), ("forest", RandomForestClassifier())], voting="soft")
```

Pipelines and searches forward `predict` and `predict_proba` and nothing else. `TreeView` asks them
for the rest:

```python
view = TreeView(search)
view.predict_level(X, "family")
view.predict_hyper_opinion(X)
view.save("model.safetensors")
```

This page is made by `docs/write_scikit_learn.py` from the cases of the tests.
"""


def page() -> str:
    """Return the page."""
    groups = runpy.run_path(str(CASES))["GROUPS_OF_ROWS"]
    parts = [HEAD]
    for title, rows in groups.items():
        lines = ["| tool | outcome | note |", "|---|---|---|"]
        for row in rows:
            outcome = f'refused: "{row.refused} ..."' if row.refused else "works"
            lines.append(f"| `{row.tool}` | {outcome} | {row.says} |")
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

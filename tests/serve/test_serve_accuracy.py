"""How often the model is right, and when fused photographs contradict each other."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from serve_cases import HOSTILE, TREE, held_out, picture, write_model

from skh2edl import HyperOpinion, Taxonomy, load_model
from skh2edl.decisions._record import record_held_out
from skh2edl.estimators.model_card import ModelCard
from skh2edl.serve import Limits, create_app
from skh2edl.serve.predictions import Prediction
from skh2edl.serve.service import Service
from skh2edl.serve.views import bare_node, sides

with warnings.catch_warnings():
    # Earlier releases of starlette use names that the latest of anyio warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastapi.testclient import TestClient


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("serve") / "colours.safetensors")


@pytest.fixture(scope="module")
def client(model):
    return TestClient(create_app(model), base_url="http://127.0.0.1:8000")


def test_how_often_the_model_is_right_is_told_for_every_level_and_setting(client, model):
    facts, clf, (X, labels) = client.get("/api/model").json(), load_model(model), held_out()
    proba = dict(zip(clf.classes_, clf.predict_proba(X).T, strict=True))
    above = {"red": ["warm", "reds", "red"], "pink": ["warm", "reds", "pink"]}
    above |= {"yellow": ["warm", "yellow", "yellow"], "green": ["cold", "green", "green"]}
    above[HOSTILE] = ["cold", HOSTILE, HOSTILE]
    predicted = clf.predict(X)
    right = [
        sum(above[p][level] == above[y][level] for p, y in zip(predicted, labels, strict=True))
        for level in range(3)
    ]
    assert facts["held_out"]["n_images"] == 40
    assert facts["held_out"]["n_right"] == right
    assert right[0] > right[2] > 0
    for hundredth, threshold in [(0, 0.0), (40, 0.4), (55, 0.55), (99, 0.99)]:
        stops = np.zeros((4, 2), dtype=int)
        for place, (best, truth) in enumerate(zip(predicted, labels, strict=True)):
            depth = 0
            for name in above[best]:
                below = [leaf for leaf in above if name in above[leaf]]
                if sum(proba[leaf][place] for leaf in below) < threshold:
                    break
                depth += 1
            is_right = depth == 0 or above[best][depth - 1] == above[truth][depth - 1]
            stops[depth] += [1, is_right]
        assert facts["held_out"]["stops"][hundredth] == stops.tolist()
        found = [g for g in facts["hedge"]["guarantees"] if g["threshold"] == threshold]
        assert all(guarantee["stops"] == stops.tolist() for guarantee in found)


def test_of_a_model_without_a_record_the_hedge_still_tells_how_often_the_leaf_is_right(model):
    needed = np.r_[np.zeros(7), 0.3, 0.9, 0.9]
    notes = {"hedge set on": "10 subjects (40 images) of birds", "hedge guarantee": "approximate"}
    one = Service(load_model(model), ModelCard(needed), "one", Limits()).facts
    assert one.held_out.n_right == [None, None, 7]
    assert (one.hedge.unit, one.hedge.is_exact) == ("photograph", False)
    several = Service(load_model(model), ModelCard(needed, notes=notes), "several", Limits()).facts
    assert several.held_out is None
    assert (several.hedge.unit, several.hedge.is_exact) == ("subject", False)
    assert Service(load_model(model), ModelCard(), "none", Limits()).facts.held_out is None


def test_the_only_class_of_a_level_says_nothing():
    tree = Taxonomy.from_nested(
        {"bird": {"wader": ["curlew", "ruff"], "gull": ["kittiwake", "tern"]}}
    )
    leaves = np.array([[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]])
    record = record_held_out(leaves, tree.resolve(["curlew", "tern"]), tree)
    model = SimpleNamespace(taxonomy_=tree)
    facts = Service(model, ModelCard(held_out=record), "birds", Limits()).facts
    assert facts.held_out.n_right == [2, 1, 1]
    assert facts.held_out.stops[75] == [(1, 1), (0, 0), (1, 1), (0, 0)]
    assert facts.held_out.stops[0] == [(0, 0), (0, 0), (0, 0), (2, 1)]
    assert bare_node(tree, 0).depth == 0


def opinion_of(**evidence):
    """Return a prediction from the evidence for some classes."""
    values = [evidence.get(child[-1], 0.0) for _, child in TREE.decisions]
    opinion = HyperOpinion.from_evidence(TREE, np.array([values]))
    return Prediction(TREE, opinion.leaf_probability[0], opinion, "+".join(evidence))


def test_photographs_disagree_where_most_of_their_belief_is_in_different_classes():
    # Of two children with a prior weight of 2, evidence e gives the belief e / (e + 2).
    found = sides([opinion_of(warm=8), opinion_of(cold=6), opinion_of(warm=18)])
    assert {(side.name, side.title, tuple(side.images)) for side in found} == {
        ("cold", "level 1", ("cold",)),
        ("warm", "level 1", ("warm", "warm")),
    }
    assert sorted(side.belief for side in found) == pytest.approx([0.75, 0.9])
    # Half of the belief is not most of it, and a class and its ancestor are no contradiction.
    assert sides([opinion_of(warm=8), opinion_of(cold=2)]) == []
    assert sides([opinion_of(warm=8), opinion_of(warm=98, reds=98, red=98)]) == []
    fine = sides([opinion_of(warm=98, reds=98, red=98), opinion_of(warm=98, reds=98, pink=48)])
    assert {side.name for side in fine} == {"red", "pink"}
    assert {side.title for side in fine} == {"finest class"}
    assert max(side.belief for side in fine) == pytest.approx(0.98**3)
    flat = [Prediction(TREE, np.eye(5)[leaf], None, str(leaf)) for leaf in (0, 4)]
    assert [side.belief for side in sides(flat)] == [1.0, 1.0]


def test_fusing_two_subjects_warns(client):
    pictures = [("files", (f"{n}.png", picture(n, 3))) for n in ("red", "green")]
    pictures.append(("files", ("other.png", picture("green", 4))))
    response = client.post("/api/predict", files=pictures).json()
    ids = [prediction["id"] for prediction in response["predictions"]]
    fused = client.post("/api/fuse", json={"predictions": ids[:2]}).json()
    assert {side["name"] for side in fused["conflict"]} == {"warm", "cold"}
    assert client.post("/api/fuse", json={"predictions": ids[1:]}).json()["conflict"] == []

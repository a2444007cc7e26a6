"""The JSON API: the model's own numbers, and no harm from anything that is sent."""

import builtins
import html
import inspect
import io
import re
import struct
import tempfile
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from serve_cases import (
    COLOURS,
    HOSTILE,
    TREE,
    Running,
    large_app,
    picture,
    send,
    write_baseline,
    write_model,
)

from skh2edl import H2EDLClassifier, HyperOpinion, load_model
from skh2edl.estimators.model_card import ModelCard
from skh2edl.serve import Limits, create_app
from skh2edl.serve.guard import HEADERS
from skh2edl.serve.routes import STATIC_TYPES, build
from skh2edl.serve.service import Service

with warnings.catch_warnings():
    # Earlier releases of starlette use names that the latest of anyio warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastapi.testclient import TestClient

ADDRESS = "http://127.0.0.1:8000"
STATIC = Path(inspect.getfile(build)).parent / "static"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("serve") / "colours.safetensors")


@pytest.fixture(scope="module")
def client(model):
    return TestClient(create_app(model), base_url=ADDRESS)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    path = write_baseline(tmp_path_factory.mktemp("serve") / "flat.safetensors")
    return TestClient(create_app(path), base_url=ADDRESS)


def form(*contents, name="photo.png"):
    return [("files", (name, content)) for content in contents]


def predict(client, *contents, **query):
    response = client.post("/api/predict", files=form(*contents), params=query)
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


def refusal(response, status):
    """Return the one sentence of a refusal."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    return response.json()["error"]


def every_node(client, prediction):
    """Return all that the API says of the tree, opened branch by branch."""
    waiting, nodes = [prediction["path"][0]], []
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if node["n_children"]:
            query = {"prediction": prediction["id"], "node": node["node"]}
            waiting += client.get("/api/children", params=query).json()["children"]
    return nodes


# Predictions -----------------------------------------------------------------------------------


def test_the_numbers_of_every_node_are_those_of_the_model_for_the_same_file(
    client, model, tmp_path
):
    for label, kind in [("red", "PNG"), (HOSTILE, "JPEG"), ("green", "WEBP")]:
        content = picture(label, seed=50, noise=60, kind=kind)
        (tmp_path / "photo").write_bytes(content)
        opinion = load_model(model).predict_hyper_opinion([str(tmp_path / "photo")])
        (prediction,) = predict(client, content)
        nodes = every_node(client, prediction)
        assert {node["label"] for node in nodes} == {str(TREE.label(v)) for v in range(9)}
        for node in nodes:
            for reading in ("belief", "probability", "plausibility"):
                expected = getattr(opinion, reading)(node["label"])[0]
                assert node[reading] == pytest.approx(expected, abs=1e-6)
            assert node["belief"] <= node["probability"] <= node["plausibility"]
        assert sum(node["mass"] for node in nodes) == pytest.approx(1, abs=1e-6)
        assert (
            prediction["path"][-1]["label"]
            == load_model(model).predict([str(tmp_path / "photo")])[0]
        )
        assert prediction["explanation"] == opinion.explain(0)
        assert prediction["nonspecificity"] == pytest.approx(opinion.nonspecificity[0], abs=1e-6)


def test_a_target_accuracy_uses_the_threshold_of_the_held_out_images(client):
    contents = [picture(("red", "pink"), seed, noise=70) for seed in range(8)]
    for target, threshold in [(0.9, 0.9), (0.5, 0.5), (0.905, 0.91)]:
        response = client.post(
            "/api/predict", files=form(*contents), params={"target_accuracy": target}
        )
        assert response.json()["threshold"] == pytest.approx(threshold)
        for prediction in response.json()["predictions"]:
            enough = [n for n in prediction["path"] if n["probability"] >= threshold]
            assert prediction["hedged"]["label"] == enough[-1]["label"]


def test_the_hedge_climbs_from_the_leaf_to_the_root_as_the_threshold_rises(client):
    content = picture(("red", "pink"), seed=70)
    path = predict(client, content)[0]["path"]
    assert path[0]["level"] == "nothing"
    assert path[-1]["level"] == "leaf"
    for node in path[1:]:
        (prediction,) = predict(client, content, threshold=node["probability"])
        assert prediction["hedged"]["label"] == node["label"]
    assert predict(client, content, threshold=1)[0]["hedged"]["level"] == "nothing"
    assert predict(client, content)[0]["hedged"] is None


def test_an_accuracy_that_cannot_be_guaranteed_is_refused_with_the_most_that_can(client, baseline):
    files = form(picture("red"))
    said = refusal(client.post("/api/predict?target_accuracy=0.995", files=files), 422)
    assert "99 images, with which at most 0.990 can be guaranteed, got 0.995" in said
    said = refusal(client.post("/api/predict?target_accuracy=0.9&threshold=0.5", files=files), 422)
    assert said == "Give target_accuracy or threshold, not both."
    said = refusal(baseline.post("/api/predict?target_accuracy=0.9", files=files), 422)
    assert "no hedge, so no accuracy can be guaranteed" in said
    assert "target_accuracy: " in refusal(
        client.post("/api/predict?target_accuracy=2", files=files), 422
    )


@pytest.mark.parametrize("how", ["cumulative", "averaging", None])
def test_fused_photographs_add_up_or_average_their_evidence(client, model, tmp_path, how):
    contents = [picture("red", 60, noise=60), picture("pink", 61, noise=60)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.png").write_bytes(content)
    files = [str(tmp_path / "0.png"), str(tmp_path / "1.png")]
    own = load_model(model).predict_hyper_opinion(files)
    total = own.evidence.sum(axis=0) / (2 if how == "averaging" else 1)
    expected = HyperOpinion.from_evidence(TREE, total, own.base_rate, own.prior_weight)
    ids = [prediction["id"] for prediction in predict(client, *contents)]
    response = client.post("/api/fuse?threshold=0.3", json={"predictions": ids, "how": how})
    fused = response.json()
    assert fused["n_images"] == 2
    assert fused["name"] == "photo.png + photo.png"
    assert fused["hedged"]["probability"] >= 0.3
    for node in every_node(client, fused):
        assert node["belief"] == pytest.approx(expected.belief(node["label"])[0], abs=1e-5)
        assert node["plausibility"] == pytest.approx(
            expected.plausibility(node["label"])[0], abs=1e-5
        )


def test_a_model_without_opinions_shows_probabilities_only(baseline):
    facts = baseline.get("/api/model").json()
    assert (facts["is_evidential"], facts["hedge"]) == (False, None)
    predictions = predict(baseline, picture("red"), picture("green"))
    leaves = []
    for prediction in predictions:
        nodes = every_node(baseline, prediction)
        assert {node["belief"] for node in nodes} == {None}
        leaves.append({n["label"]: n["probability"] for n in nodes if n["n_children"] == 0})
        assert sum(leaves[-1].values()) == pytest.approx(1)
        assert prediction["nonspecificity"] is None
        assert "The likeliest class is" in prediction["explanation"]
    ids = [prediction["id"] for prediction in predictions]
    said = refusal(baseline.post("/api/fuse", json={"predictions": ids, "how": "cumulative"}), 422)
    assert "no evidence to add up" in said
    fused = baseline.post("/api/fuse", json={"predictions": ids}).json()
    for node in every_node(baseline, fused):
        if node["n_children"] == 0:
            mean = (leaves[0][node["label"]] + leaves[1][node["label"]]) / 2
            assert node["probability"] == pytest.approx(mean)


def test_requests_at_the_same_time_do_not_mix(client, model):
    contents = [picture(label, seed, noise=60) for label in COLOURS for seed in range(2)]
    one_by_one = [predict(client, content)[0]["path"] for content in contents]
    with Running(create_app(model)) as url, ThreadPoolExecutor(8) as pool:
        at_once = [prediction["path"] for prediction in pool.map(partial(send, url), contents)]
    assert at_once == one_by_one


def test_the_model_is_described(client):
    facts = client.get("/api/model").json()
    assert (facts["name"], facts["method"]) == ("colours", "H2EDLClassifier")
    assert facts["tree"]["n_leaves"] == 5
    assert facts["tree"]["levels"] == ["level_1", "level_2", "leaf"]
    assert facts["notes"] == {"data": "colours"}
    assert facts["hedge"]["n_images"] == 99
    steps = {row["target_accuracy"]: row["threshold"] for row in facts["hedge"]["guarantees"]}
    assert steps[0.95] == pytest.approx(0.95)
    assert max(steps) == 0.99


def test_of_ten_thousand_leaves_only_what_matters_is_sent(monkeypatch):
    client = TestClient(large_app(monkeypatch), base_url=ADDRESS)
    response = client.post("/api/predict", files=form(picture("red")))
    assert len(response.content) < 30_000
    (prediction,) = response.json()["predictions"]
    opened = {page["node"]: page for page in prediction["tree"]}
    assert sum(len(page["children"]) for page in opened.values()) < 60
    # The whole path to the likeliest leaf is open.
    for above, below in zip(prediction["path"], prediction["path"][1:], strict=False):
        shown = [child["label"] for child in opened[above["node"]]["children"]]
        assert below["label"] in shown
    # Pages of a branch hold all its children once, the likeliest first.
    found, offset = [], 0
    while True:
        query = {"prediction": prediction["id"], "node": prediction["path"][1]["node"], "limit": 20}
        page = client.get("/api/children", params={**query, "offset": offset}).json()
        found += page["children"]
        offset += len(page["children"])
        rest = sum(n["probability"] for n in found) + page["rest_probability"]
        assert rest == pytest.approx(prediction["path"][1]["probability"])
        if offset == page["total"]:
            break
    assert len({node["node"] for node in found}) == 50
    likely = [node["probability"] for node in found]
    assert likely == sorted(likely, reverse=True)
    query = {"prediction": prediction["id"], "text": "GENUS 7.3", "limit": 5}
    looked = client.get("/api/find", params=query).json()
    assert looked["total"] == 11  # 7.3 and 7.30 to 7.39
    assert looked["nodes"][0]["place"] == "family 7"


def test_a_prediction_that_is_forgotten_has_to_be_asked_for_again(model):
    limits = Limits(max_kept_mb=0.0035)
    client = TestClient(create_app(model, limits=limits), base_url=ADDRESS)
    first = predict(client, picture("red"))[0]["id"]
    assert client.get("/api/children", params={"prediction": first}).status_code == 200
    for seed in range(3):
        last = predict(client, picture("red", seed))[0]["id"]
    said = refusal(client.get("/api/children", params={"prediction": first}), 404)
    assert said == "This prediction is no longer kept. Send the image again to get a new one."
    refusal(client.post("/api/fuse", json={"predictions": [first, last]}), 404)


def test_a_request_that_makes_no_sense_is_refused_with_the_reason(client):
    (prediction,) = predict(client, picture("red"))
    key = prediction["id"]
    said = refusal(client.get("/api/children", params={"prediction": key, "node": 99}), 404)
    assert said == "The tree has nodes 0 to 8, and no node 99."
    assert "prediction: Field required" in refusal(client.get("/api/children"), 422)
    assert "node: " in refusal(client.get(f"/api/children?prediction={key}&node=x"), 422)
    assert "limit: " in refusal(client.get(f"/api/children?prediction={key}&limit=100000"), 422)
    assert "predictions: " in refusal(client.post("/api/fuse", json={"predictions": [key]}), 422)
    assert "repeated" in refusal(client.post("/api/fuse", json={"predictions": [key, key]}), 422)
    kind = {"content-type": "application/json"}
    assert "JSON" in refusal(client.post("/api/fuse", content=b"{", headers=kind), 422)
    assert "nothing at this address" in refusal(client.get("/api/predictions"), 404)
    assert "GET is not allowed" in refusal(client.get("/api/predict"), 405)


# Uploads ---------------------------------------------------------------------------------------


def png_that_declares(width, height):
    """A file of 100 bytes that would take gigabytes to decode."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"MZ not an image", "it is in none of the formats JPEG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "none of the formats"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "none of the formats"),
        (picture("red", kind="JPEG")[:300], "(?i)truncated"),
        (png_that_declares(9000, 9000), "declares 9000 x 9000 pixels, more than max_pixels=6400"),
        (png_that_declares(60000, 60000), "3600000000 pixels"),
        (png_that_declares(20000, 1), "too narrow to resize|truncated|broken"),
    ],
    ids=["empty", "exe", "svg", "eps", "cut", "bomb", "large bomb", "strip"],
)
def test_a_hostile_file_is_refused_and_the_one_beside_it_classified(
    client, content, reason, monkeypatch
):
    load, decoded = ImageFile.ImageFile.load, []

    def watched(image):
        decoded.append(image.width * image.height)
        return load(image)

    monkeypatch.setattr(ImageFile.ImageFile, "load", watched)
    bad, good = predict(client, content, picture("red"))
    assert re.search(reason, bad["error"])
    assert bad["error"].startswith("'photo.png' c")
    assert bad["id"] is None
    assert good["error"] is None
    assert good["path"][1]["label"] == "warm"
    assert max(decoded) <= Limits().max_pixels


def test_names_of_files_are_names_and_nothing_else(client):
    for name, shown in [
        ("../../etc/passwd", "passwd"),
        ("C:\\photos\\x.png", "x.png"),
        ("<script>alert(1)<\\script>", "script>"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("x" * 900 + ".jpeg", "x" * 187 + "...xxxxx.jpeg"),
    ]:
        response = client.post("/api/predict", files=form(picture("red"), name=name))
        assert response.json()["predictions"][0]["name"] == shown


def test_too_many_files_are_refused(model):
    client = TestClient(create_app(model, limits=Limits(max_files=2)), base_url=ADDRESS)
    assert len(predict(client, *[picture("red")] * 2)) == 2
    for n_files in (3, 4, 50):
        said = refusal(client.post("/api/predict", files=form(*[picture("red")] * n_files)), 413)
        assert said.startswith("A request may hold at most 2 images.")


def test_too_much_is_refused_whether_it_declares_its_length_or_not(model):
    client = TestClient(create_app(model, limits=Limits(max_upload_mb=0.05)), base_url=ADDRESS)
    said = refusal(client.post("/api/predict", files=form(bytes(50_001))), 413)
    assert said.startswith("A request may send at most 0.05 MB.")
    sent = []

    def endless():
        start = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        yield start
        for _ in range(1000):
            sent.append(1)
            yield bytes(1000)

    kind = {"content-type": "multipart/form-data; boundary=x"}
    for path in ("/api/predict", "/api/fuse"):
        response = client.post(path, content=endless(), headers=kind)
        assert "at most 0.05 MB" in refusal(response, 413)


@pytest.mark.parametrize(
    ("kind", "body", "status", "reason"),
    [
        (None, b"abc", 415, "multipart/form-data in parts named 'files', got 'no content type'"),
        ("image/png", b"abc", 415, "got 'image/png'"),
        ("multipart/form-data", b"abc", 400, "boundary"),
        ("multipart/form-data; boundary=x", b"abc", 400, "could not be read|no file in the form"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nabc\r\n--x--", 400, "Content-Disposition"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 400, "no file in|could not be read"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="files"\r\n\r\nabc\r\n--x--\r\n',
            400,
            "no file in the form",
        ),
    ],
)
def test_a_form_that_is_none_is_refused(client, kind, body, status, reason):
    headers = {} if kind is None else {"content-type": kind}
    said = refusal(client.post("/api/predict", content=body, headers=headers), status)
    assert re.search(reason, said)


def test_no_image_is_ever_written_to_disk(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = []
    real = builtins.open

    def watched(file, mode="r", *args, **more):
        if set(mode) & set("wax+"):
            opened.append(file)
        return real(file, mode, *args, **more)

    monkeypatch.setattr(builtins, "open", watched)
    monkeypatch.setattr(
        tempfile.SpooledTemporaryFile, "rollover", lambda self: opened.append("spool")
    )
    noise = np.random.default_rng(0).integers(256, size=(1200, 1200, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    assert len(buffer.getvalue()) > 4_000_000  # four times what frameworks keep in memory
    assert predict(client, buffer.getvalue())[0]["error"] is None
    assert opened == []
    assert list(tmp_path.iterdir()) == []


# Who may ask -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", ""]
)
def test_a_foreign_name_that_leads_here_is_refused(client, host):
    for path in ("/", "/api/model", "/static/app.js"):
        said = refusal(client.get(path, headers={"host": host}), 400)
        assert "does not go by the name" in said


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "LOCALHOST:8000", "[::1]:8000"])
def test_addresses_and_localhost_are_served(client, host):
    assert client.get("/api/model", headers={"host": host}).status_code == 200


def test_a_name_can_be_allowed(model):
    client = TestClient(create_app(model, hosts=["birds.lan"]), base_url="http://birds.lan:8000")
    assert client.get("/").status_code == 200
    refusal(client.get("/", headers={"host": "localhost"}), 400)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8000"]
)
def test_pages_of_other_sites_cannot_send_images_nor_read_predictions(client, origin):
    response = client.post("/api/predict", files=form(picture("red")), headers={"origin": origin})
    assert refusal(response, 403) == "Requests from pages of other sites are not answered."
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    for response in (
        client.options("/api/predict", headers=preflight),
        client.get("/api/model", headers={"origin": origin}),
    ):
        assert not [name for name in response.headers if name.startswith("access-control")]


def test_the_own_page_may_send_images(client):
    response = client.post("/api/predict", files=form(picture("red")), headers={"origin": ADDRESS})
    assert response.status_code == 200


def test_every_response_carries_the_headers(client, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("skh2edl.serve.service.read_predictions", fail)
    broken = client.post("/api/predict", files=form(picture("red")))
    assert refusal(broken, 500) == "Something failed in the server; its log says what."
    responses = [
        broken,
        client.get("/"),
        client.get("/static/page.css"),
        client.get("/api/model"),
        client.get("/api/openapi.json"),
        client.get("/nothing"),
        client.get("/", headers={"host": "evil.example"}),
        client.post("/api/predict", content=b""),
    ]
    for response in responses:
        assert HEADERS.items() <= dict(response.headers).items()
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/static/index.html",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/__init__.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/docs",
        "/redoc",
        "/colours.safetensors",
    ],
)
def test_no_path_is_served(client, path):
    refusal(client.get(path), 404)


def test_the_api_describes_itself(client):
    description = client.get("/api/openapi.json").json()
    operations = [op for path in description["paths"].values() for op in path.values()]
    assert len(operations) == 5
    for operation in operations:
        assert operation["description"]
        refused = operation["responses"]["400"]["content"]["application/json"]["schema"]
        assert refused["$ref"].endswith("/Problem")
    body = description["paths"]["/api/predict"]["post"]["requestBody"]["content"]
    files = body["multipart/form-data"]["schema"]["properties"]["files"]
    assert files["items"] == {"type": "string", "format": "binary"}
    node = description["components"]["schemas"]["Node"]["properties"]
    assert {"belief", "probability", "plausibility", "mass", "vacuity"} <= node.keys()


def test_the_page_describes_the_model_and_takes_names_for_text(tmp_path):
    notes = {"data": HOSTILE, "<b>": "bold"}
    estimator = load_model(write_model(tmp_path / "colours.safetensors"))
    service = Service(estimator, ModelCard(notes=notes), HOSTILE, Limits())
    client = TestClient(build(service, ["localhost"]), base_url=ADDRESS)
    page = client.get("/").text
    assert html.unescape(page).count(HOSTILE) == 3  # title, heading and note
    assert "<img" not in page
    assert "<b>" not in page
    assert "5 classes on 3 levels." in " ".join(page.split())
    assert "At most 64 MB and 64 megapixels each." in page
    assert "plausibility" in page
    assert 'id="kinds" hidden' in page  # without a hedge there is no target accuracy


def test_the_page_of_a_model_without_opinions_speaks_of_probabilities_only(baseline):
    page = baseline.get("/").text
    assert "The probabilities on the tree" in page
    assert "belief<" not in page
    assert "vacuity" not in page


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_markup():
    files = {path.name: path.read_text(encoding="utf-8") for path in STATIC.iterdir()}
    assert {*files} == {"index.html", *STATIC_TYPES}
    for name, text in files.items():
        outside = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)
        assert outside == (["http://www.w3.org"] if name == "icon.svg" else [])
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"\sstyle=|\son\w+=|<script>", files["index.html"])


# Set-up ----------------------------------------------------------------------------------------


def test_models_of_numbers_and_strangers_are_refused(tmp_path):
    features = np.random.default_rng(0).normal(size=(6, 2))
    clf = H2EDLClassifier(backbone=None).fit(features, ["a", "b"] * 3)
    clf.save(tmp_path / "rows.safetensors")
    with pytest.raises(ValueError, match="reads columns of numbers, not images"):
        create_app(tmp_path / "rows.safetensors")
    with pytest.raises(TypeError, match="a model file or a classifier of this package, got dict"):
        create_app({})
    with pytest.raises(FileNotFoundError, match="nowhere"):
        create_app(tmp_path / "nowhere.safetensors")

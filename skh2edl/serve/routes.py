"""The page and the API behind it."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .. import __version__
from .guard import Guard, client_of
from .schemas import Children, Found, FuseRequest, ModelFacts, Predictions, PredictionView, Problem
from .service import Service
from .uploads import FIELD, read_uploads
from .views import children_view, found_view

# Everything that is served beside the API; no name that a visitor sends is looked up on disk.
STATIC_TYPES = {
    "page.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "photos.js": "text/javascript; charset=utf-8",
    "tree.js": "text/javascript; charset=utf-8",
    "words.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# What is refused before all of it was read: the connection cannot be used again.
_UNREAD = {400, 408, 413, 415, 503}
_DESCRIPTION = """\
Predictions of a hierarchical classifier: probabilities of every class of its tree and, for
evidential models, belief and plausibility. Images are read in memory and forgotten. Errors are JSON
with one sentence under `error`.
"""
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "properties": {
                        FIELD: {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "Images: JPEG, PNG, WebP, TIFF, BMP, GIF and others.",
                        }
                    },
                }
            }
        },
    }
}

TargetQuery = Annotated[
    float | None,
    Query(gt=0, lt=1, description="Accuracy that hedged predictions reach on average."),
]
ThresholdQuery = Annotated[
    float | None, Query(ge=0, le=1, description="Or their least probability.")
]
PredictionQuery = Annotated[str, Query(max_length=100, description="Id of a prediction.")]


def build(service: Service, hosts: Collection[str]) -> FastAPI:
    """Return the application around a service.

    Parameters
    ----------
    service : Service
        The model.
    hosts : collection of str
        Names under which the server may be called.
    """
    app = FastAPI(
        title="skh2edl",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url="/api/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(Guard, hosts=hosts, limits=service.limits)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    _add_page(app, service)
    _add_api(app, service)
    return app


def _add_page(app: FastAPI, service: Service) -> None:
    folder = files(__package__).joinpath("static")
    templates = Environment(
        loader=PackageLoader(__package__, "static"), autoescape=True, undefined=StrictUndefined
    )
    page = templates.get_template("index.html").render(model=service.facts)
    static = {name: folder.joinpath(name).read_bytes() for name in STATIC_TYPES}

    def index() -> Response:
        return Response(page, media_type="text/html; charset=utf-8")

    def file(name: str) -> Response:
        if name not in static:
            raise HTTPException(404, "There is no such file.")
        return Response(static[name], media_type=STATIC_TYPES[name])

    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/static/{name}", file, include_in_schema=False)


def _add_api(app: FastAPI, service: Service) -> None:
    def model() -> ModelFacts:
        """Describe the model: its tree, what it can guarantee, and the limits."""
        return service.facts

    async def predict(
        request: Request, target_accuracy: TargetQuery = None, threshold: ThresholdQuery = None
    ) -> Predictions:
        """Classify images, each on its own."""
        least = service.threshold(target_accuracy, threshold)
        uploads = await read_uploads(request, service.limits)
        client = client_of(request.scope)
        async with service.turn_of(client):
            pictures = await service.prepare(uploads)
            predictions = await service.predict(pictures, least, client)
        return Predictions(threshold=least, predictions=predictions)

    def fuse(
        request: Request,
        wanted: FuseRequest,
        target_accuracy: TargetQuery = None,
        threshold: ThresholdQuery = None,
    ) -> PredictionView:
        """Classify several photographs of one subject together.

        The hedge was set on single photographs; for fused ones its threshold is used, but no
        accuracy is guaranteed.
        """
        least = service.threshold(target_accuracy, threshold)
        return service.fuse(wanted.predictions, wanted.how, least, client_of(request.scope))

    def children(
        prediction: PredictionQuery,
        node: Annotated[int, Query(ge=0, le=2**53, description="Number of the node to open.")] = 0,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 25,
    ) -> Children:
        """Open a branch: the children of a node, the likeliest first."""
        found, n_nodes = service.kept(prediction), service.tree.n_nodes
        if node >= n_nodes:
            raise HTTPException(404, f"The tree has nodes 0 to {n_nodes - 1}, and no node {node}.")
        return children_view(found, int(service.tree.last_of_chain[node]), offset, limit)

    def find(
        prediction: PredictionQuery,
        text: Annotated[str, Query(min_length=1, max_length=100, description="Part of a name.")],
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Found:
        """Look for classes by name, with the numbers of a prediction."""
        return found_view(service.kept(prediction), text, limit)

    def add(path: str, endpoint: Any, method: str, refusals: tuple[int, ...], **more: Any) -> None:
        responses: dict[int | str, dict[str, Any]] = {
            status: {"model": Problem} for status in (400, *refusals)
        }
        app.add_api_route(path, endpoint, methods=[method], responses=responses, **more)

    add("/api/model", model, "GET", ())
    add("/api/predict", predict, "POST", (403, 408, 413, 415, 422, 503), openapi_extra=_FORM)
    add("/api/fuse", fuse, "POST", (403, 404, 408, 413, 422, 503))
    add("/api/children", children, "GET", (404, 422))
    add("/api/find", find, "GET", (404, 422))


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code in _UNREAD:
        headers["connection"] = "close"
    detail = str(error.detail)
    if error.status_code == 404 and detail == "Not Found":
        detail = "There is nothing at this address. /api/openapi.json lists what there is."
    if error.status_code == 405:
        detail = f"{request.method} is not allowed at this address."
    return JSONResponse({"error": detail}, error.status_code, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    return JSONResponse({"error": f"{place or 'The request'}: {first['msg']}."[:500]}, 422)

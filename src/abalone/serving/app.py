"""HTTP endpoints of a model."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response
from opentelemetry import trace
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from abalone import __version__
from abalone.serving.batching import ROOM, Batcher, Busy
from abalone.serving.limits import Limits, Memory, Paced, Share, read_request
from abalone.serving.middleware import Guard, InFlight, Metrics
from abalone.serving.predictions import (
    Health,
    KnownLabel,
    LabelsResponse,
    Predictions,
    PredictRequest,
    PredictResponse,
    Problem,
    Query,
    Refusal,
    Served,
    Status,
    Verdict,
    problem,
    shown_threshold,
)

PAGE = Path(__file__).with_name("page")
LAST_BATCH = 2.0  # seconds for a batch that is at work when nobody waits for it any more
REFUSALS: dict[int | str, dict[str, Any]] = {
    status.value: {"model": Problem, "description": description}
    for status, description in (
        (HTTPStatus.BAD_REQUEST, "The body is not JSON."),
        (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large."),
        (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is not declared as JSON."),
        (HTTPStatus.UNPROCESSABLE_ENTITY, "The JSON does not fit the schema."),
        (HTTPStatus.SERVICE_UNAVAILABLE, "Too many texts are waiting; `Retry-After` says when to try again."),
    )
}


def create_app(
    served: Served,
    *,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = None,
    key: str | None = None,
    room: int = ROOM,
) -> FastAPI:
    """Return the application that serves a model, for any ASGI server.

    Args:
        served: the model.
        limits: how much a request may ask for.
        hosts: the names it answers to; any without it.
        key: that requests have to bring; none without it.
        room: texts that may wait for the model.
    """
    limits = limits or Limits()
    metrics, memory, in_flight = Metrics(), Memory(limits.bytes_in_flight), InFlight()
    names = served.classifier.label_names
    predictions = Predictions(served, max(limits.labels, len(names)))  # all labels of one text are never too many
    batcher: Batcher[Query, Verdict] = Batcher(
        served.answer,
        lambda query: len(query.text),
        observe=metrics.observe_batch,
        room=max(room, limits.texts),
        check=Query("A text to label."),
    )
    metrics.waiting.set_function(lambda: batcher.waiting)
    metrics.in_flight.set_function(lambda: len(in_flight))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close, LAST_BATCH)

    # The usual pages of FastAPI would load their scripts from elsewhere; `/docs` is our own.
    app = FastAPI(title="ABALONE", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Paced, memory=memory)
    app.add_middleware(Guard, metrics=metrics, in_flight=in_flight, hosts=hosts, key=key)
    app.state.in_flight, app.state.batcher = in_flight, batcher  # for who stops the server
    app.add_exception_handler(Refusal, _refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.mount("/static", StaticFiles(directory=PAGE), name="static")

    @app.post(
        "/v1/predict",
        response_model=PredictResponse,
        responses=REFUSALS,
        summary="Label texts",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": PredictRequest.model_json_schema()}},
            }
        },
    )
    async def predict(request: Request) -> Response:
        with Share(memory) as share:
            asked = await read_request(request, limits, share)
            if asked.evidence and served.evidence is None:
                raise Refusal(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "no evidence is available: the server was started without --evidence",
                )
            predictions.check(len(asked.all_texts), asked.top_k)
            queries = [Query(text, asked.evidence) for text in asked.all_texts]
            # FastAPI makes a span of the request. Where nobody collects them, neither costs anything.
            tracer = trace.get_tracer("abalone.serving")
            with tracer.start_as_current_span("predict", attributes={"texts": len(queries)}):
                answers = await _unless_gone(request, batcher, queries, limits)
            body = await asyncio.to_thread(predictions.body, answers, asked.top_k)
        return Response(body, media_type="application/json")

    @app.get(
        "/v1/labels",
        response_model=LabelsResponse,
        summary="The labels, with their thresholds, training documents and F1 on validation",
    )
    async def labels() -> Response:
        body = await asyncio.to_thread(known_labels)
        return Response(body, media_type="application/json")

    @cache
    def known_labels() -> str:
        counts: Sequence[int | None] = served.frequencies or [None] * len(names)
        f1: Sequence[float | None] = served.label_f1 or [None] * len(names)
        known = zip(names, served.classifier.decision.thresholds.values, counts, f1, strict=True)
        return LabelsResponse(
            model=served.name,
            labels=[
                KnownLabel(name=name, threshold=shown_threshold(cut), documents=seen, f1=score)
                for name, cut, seen, score in known
            ],
            evidence=served.evidence is not None,
            max_texts=limits.texts,
            max_characters=limits.characters,
            max_labels=predictions.most,
        ).model_dump_json()

    def assert_sound() -> None:
        if not batcher.sound:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the model crashed and has not recovered; see the log")

    def assert_ready() -> None:
        assert_sound()
        if not batcher.alive:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping")
        if batcher.busy_seconds > limits.seconds:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the model has not answered for {batcher.busy_seconds:.0f} s"
            )

    unwell: dict[int | str, dict[str, Any]] = {503: {"model": Problem}}

    @app.get("/livez", summary="Whether the process is worth keeping; if not, start it again", responses=unwell)
    async def livez() -> Status:
        assert_sound()
        return Status(status="ok")

    @app.get("/readyz", summary="Whether to send requests here", responses=unwell)
    async def readyz() -> Status:
        assert_ready()
        return Status(status="ok")

    @app.get("/healthz", summary="As /readyz, with the model's name", responses=unwell)
    async def healthz() -> Health:
        assert_ready()
        return Health(status="ok", model=served.name)

    @app.get("/metrics", summary="Counters, for Prometheus", response_class=Response)
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type=metrics.content_type)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(PAGE / "docs.html")

    return app


async def _unless_gone(
    request: Request, batcher: Batcher[Query, Verdict], queries: list[Query], limits: Limits
) -> list[Verdict]:
    """Return the answers; requests of clients that disconnect are dropped."""
    answering = asyncio.ensure_future(batcher.submit(queries))
    hanging_up = asyncio.ensure_future(request.receive())  # the body has been read: the next event is the end
    try:
        await asyncio.wait({answering, hanging_up}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        if hanging_up.done():
            raise Refusal(HTTPStatus.BAD_REQUEST, "the client disconnected")
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"no answer within {limits.seconds:g} s", retry_after=5)
    except Busy as busy:
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{busy}; try again later", busy.retry_after) from None
    finally:
        answering.cancel()
        hanging_up.cancel()


async def _refuse(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    return refusal.answer()


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    path = request.scope["path"][:100]  # `request.url` decodes the query, which may hold any bytes
    reason = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {path}; /docs says what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{path} does not take {request.method[:20]}",
    }.get(status, str(error.detail))
    return problem(status, reason, headers=dict(error.headers or {}))

"""What every route of the HTTP door shares: bodies and queries in, JSON out.

Knows neither a route nor a node.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from headrace.config import explain
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

M = TypeVar("M", bound=BaseModel)


class Fields(BaseModel):
    """What a body or a query may hold, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class MessageFields(Fields):
    """What a message says."""

    payload: StrictStr | None = None
    payload_base64: StrictStr | None = None
    properties: dict[StrictStr, StrictStr] = Field(default_factory=dict)

    def content(self) -> bytes:
        """The payload.

        Raises:
            HTTPBadRequest: there is none, or two, or it is no base64.
        """
        if (self.payload is None) == (self.payload_base64 is None):
            raise bad_request("give one of payload (text) and payload_base64")
        if self.payload is not None:
            return self.payload.encode()
        try:
            return base64.b64decode(self.payload_base64 or "", validate=True)
        except ValueError as error:  # binascii.Error is one
            raise bad_request(f"payload_base64: {error}") from None


def answer(value: object, status: int = 200) -> web.Response:
    """One line, ended, so that a prompt does not stick to it."""
    text = json.dumps(value) + "\n"
    return web.Response(text=text, status=status, content_type="application/json")


def problem(status: int, kind: str, detail: str) -> web.Response:
    """What went wrong, as every error is answered."""
    return answer({"error": kind, "detail": detail}, status=status)


def bad_request(detail: str) -> web.HTTPBadRequest:
    """To raise: the request is wrong."""
    return web.HTTPBadRequest(text=detail)


async def body(request: web.Request, model: type[M], empty: bytes = b"") -> M:
    """The request's JSON as a model; `empty` where it has none.

    Raises:
        HTTPBadRequest: it is no such JSON.
    """
    text = await request.read() or empty
    return _read(model, lambda: model.model_validate_json(text), "the body")


def query(request: web.Request, model: type[M]) -> M:
    """The request's query as a model.

    Raises:
        HTTPBadRequest: it is no such query, or names something twice.
    """
    if len(request.query) > len(set(request.query)):
        twice = next(name for name in request.query if len(request.query.getall(name)) > 1)
        raise bad_request(f"{twice}: is there twice; name it once")
    return _read(model, lambda: model.model_validate(dict(request.query)), "the query")


def _named(path: Iterable[str]) -> str:
    """As in `messages[1].payload`."""
    parts = (f"[{part}]" if part.isdecimal() else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def refuse_query(request: web.Request, instead: str = "") -> None:
    """Refuses a query where there is none: it would say less than what is done.

    Raises:
        HTTPBadRequest: there is one; `instead` says what to do.
    """
    for name in request.query:
        raise bad_request(f"{shown(name)}: a deletion has no query{instead}")


def _read(model: type[M], read: Callable[[], M], whole: str) -> M:
    try:
        return read()
    except ValidationError as error:
        text = explain(error, model, lambda path: _named(path) or whole)
        raise bad_request(text.partition("\n")[0]) from None

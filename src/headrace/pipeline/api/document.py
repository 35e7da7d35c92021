"""The API described: OpenAPI 3.1, and a page that shows it. Made from the routes, so it is true."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

from headrace import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.pipeline.api.routes import Route

_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "UUID of a GPU; of a MIG slice UUID/ID, with the / as %2F.",
    "schema": {"type": "string"},
}
_ERRORS: Final = {
    "400": "A parameter is wrong; `detail` says which and what it takes.",
    "404": "No such GPU is in the tables.",
    "503": "The tables cannot be read now; the same request may succeed later.",
}
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#2b2f36}
h2{font:600 1.05em ui-monospace,monospace;background:#eef1f4;padding:.4em .6em;border-radius:4px}
table{border-collapse:collapse;width:100%}tr{border-top:1px solid #d9dce1}
td{vertical-align:top;padding:.2em .6em}
td:first-child{font-family:ui-monospace,monospace;white-space:nowrap}
code{font-family:ui-monospace,monospace}
"""


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """The document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace: GPU telemetry",
            "version": __version__,
            "description": "GPUs, their telemetry and detections, out of the pipeline's tables. "
            "Times are RFC 3339. Lists come in pages: `next` of one is `next` of the question for "
            "the one after it.",
        },
        "paths": {route.path: {"get": _operation(route)} for route in routes},
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {
                        "error": {"type": "string", "description": "Kind."},
                        "detail": {"type": "string", "description": "What, where, what to do."},
                    },
                    "required": ["error", "detail"],
                }
            }
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    named = re.sub(r"[{}]", "", route.path.removeprefix("/api/v1/")).replace("/", "_")
    answer = {
        "type": "object",
        "properties": {name: {"description": what} for name, what in route.shape.items()},
        "required": list(route.shape),
    }
    refused = {"$ref": "#/components/schemas/Error"}
    return {
        "operationId": named,
        "summary": route.summary,
        "parameters": [*([_ID] if "{id}" in route.path else []), *_parameters(route)],
        "responses": {
            "200": {"description": route.summary, "content": _json(answer)},
            **{
                status: {"description": what, "content": _json(refused)}
                for status, what in _ERRORS.items()
                if status != "404" or "{id}" in route.path
            },
        },
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    properties = route.asked.model_json_schema().get("properties", {})
    return [_parameter(name, dict(schema)) for name, schema in properties.items()]


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    description = schema.pop("description", "")
    schema.pop("title", None)
    kinds = [kind for kind in schema.pop("anyOf", [schema]) if kind.get("type") != "null"]
    schema = {**kinds[0], **{key: value for key, value in schema.items() if value is not None}}
    return {"name": name, "in": "query", "description": description, "schema": schema}


def page(routes: Iterable[Route]) -> str:
    """The same for a person, one file that loads nothing."""
    document = openapi(routes)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>headrace API</title>",
        f"<style>{_STYLE}</style><h1>{escape(document['info']['title'])}</h1>",
        f"<p>{_text(document['info']['description'])} ",
        "As a document: <a href=/api/v1/openapi.json>openapi.json</a>.</p>",
    ]
    for path, methods in document["paths"].items():
        told = methods["get"]
        parts.append(f"<h2>GET {escape(path)}</h2><p>{_text(told['summary'])}</p><table>")
        for each in told["parameters"]:
            kind = _kind(each["schema"])
            parts.append(
                f"<tr><td>{escape(each['name'])}<td>{escape(kind)}<td>{_text(each['description'])}"
            )
        parts.append("</table><p>Answers:</p><table>")
        answer = told["responses"]["200"]["content"]["application/json"]["schema"]
        for name, each in answer["properties"].items():
            parts.append(f"<tr><td>{escape(name)}<td>{_text(each['description'])}")
        parts.append("</table>")
    parts.append(
        "<h2>Errors</h2><p><code>{&quot;error&quot;: KIND, &quot;detail&quot;: ONE LINE}</code>"
        "</p><table>"
    )
    parts += [f"<tr><td>{status}<td>{_text(what)}" for status, what in _ERRORS.items()]
    return "".join(parts) + "</table></html>\n"


def _kind(schema: dict[str, Any]) -> str:
    told = str(schema.get("format", schema.get("type", "")))
    if "enum" in schema:
        told = " | ".join(schema["enum"])
    if "maximum" in schema:
        told += f" {schema['minimum']}..{schema['maximum']}"
    return f"{told} = {schema['default']}" if "default" in schema else told


def _text(text: str) -> str:
    """With what stands in backquotes as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))

"""Every setting of a node as people write it: what `show`, the reference and JSON Schema say.

Owns how a value is spelled. Invariant: what is written here reads back as the same value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import BaseModel

from headrace.config.changes import is_live
from headrace.config.readers import DURATION_PATTERN, SIZE_PATTERN, Within, flatten
from headrace.config.schema import Config
from headrace.config.streams import STREAM_KEYS, TABLES, StreamSettings
from headrace.queue_settings import BOTH
from headrace.settings import SETTINGS, Kind, Setting, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from headrace.settings import Value

Written: TypeAlias = "bool | int | float | str | list[str] | list[dict[str, Written]]"
"""A value as TOML and JSON have it."""

_OF_STREAMS: Final = {name.replace(".", "_"): setting for name, setting in SETTINGS.items()}

_MODES: Final = {"unix_mode"}
"""Written in octal."""


def tables() -> dict[str, type[BaseModel]]:
    """The tables whose settings have fixed names, in the order of the reference."""
    annotations = {name: field.annotation for name, field in Config.model_fields.items()}
    return {
        name: model
        for name, model in annotations.items()
        if isinstance(model, type) and issubclass(model, BaseModel)
    }


def settings() -> Iterator[tuple[str, str, FieldInfo]]:
    """Table, key and field of every setting, but those of streams."""
    for table, model in tables().items():
        for key, field in model.model_fields.items():
            yield table, key, field


def written(key: str, field: FieldInfo, value: object) -> Written | None:
    """A value of a setting; None where it is not set."""
    if value is None:
        return "off" if key.endswith("bind") else None
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        value = tuple(
            f"{name}={each if isinstance(each, str) else format(each, '.15g')}"
            for name, each in flatten(value).items()
        )
    if key in _MODES:
        return f"{value:04o}"
    if type(value) is tuple:
        tables = [_entry(each) for each in value if isinstance(each, BaseModel)]
        return tables or [str(each) for each in value]
    if isinstance(value, int | float):
        return quantity(value, unit(key, field))
    return str(value)


def unit(key: str, field: FieldInfo) -> str:
    """What a number of this setting counts: `bytes`, `milliseconds`, or nothing."""
    if key in _OF_STREAMS:
        return _OF_STREAMS[key].kind.unit
    readers = (getattr(each, "func", None) for each in field.metadata)
    return next((each.unit for each in readers if isinstance(each, Within)), "")


def literal(value: Written) -> str:
    """A value as TOML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(_inline(e) if isinstance(e, dict) else literal(e) for e in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _entry(table: BaseModel) -> dict[str, Written]:
    """One of a list of tables, with what it says."""
    told = {key: getattr(table, key) for key in table.model_dump(exclude_defaults=True)}
    each = {key: written(key, type(table).model_fields[key], told[key]) for key in told}
    return {key: value for key, value in each.items() if value is not None}


def _inline(table: Mapping[str, Written]) -> str:
    return f"{{{', '.join(f'{key} = {literal(value)}' for key, value in table.items())}}}"


def json_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) of the file, for editors and for checks elsewhere."""
    schema: dict[str, Any] = Config.model_json_schema()
    definitions = schema["$defs"]
    for table, model in tables().items():
        properties = definitions[model.__name__]["properties"]
        schema["properties"][table].pop("default", None)
        for key, field in model.model_fields.items():
            default = written(key, field, field.get_default())
            properties[key].pop("default", None)
            if table == "log" and key in _OF_STREAMS:
                properties[key] = _schema_of(_OF_STREAMS[key])
            if default is not None:
                properties[key]["default"] = default
            properties[key]["x-live"] = is_live(table, key)
    for model in TABLES.values():
        properties = definitions[model.__name__]["properties"]
        del properties["settings"]
        properties |= {name: _schema_of(setting) for name, setting in model.KNOWN.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a headrace node",
        **{name: part for name, part in schema.items() if name != "title"},
    }


def _schema_of(setting: Setting) -> dict[str, Any]:
    base: dict[str, Any] = {"description": setting.summary}
    if setting.kind is Kind.CHOICE:
        return base | {"enum": list(setting.words)}
    if setting.kind is Kind.CHOICES:
        word = "|".join(setting.words)
        return base | {"type": "string", "pattern": f"^({word})( *, *({word}))*$"}
    number: dict[str, Any] = {
        "type": "number" if setting.kind is Kind.RATIO else "integer",
        "minimum": -1 if setting.unlimited else setting.low,
        "maximum": setting.high,
    }
    pattern = {Kind.SIZE: SIZE_PATTERN, Kind.DURATION: DURATION_PATTERN}.get(setting.kind)
    text = [] if pattern is None else [{"type": "string", "pattern": pattern}]
    return base | {"anyOf": [number, *text]}


def written_of_stream(setting: Setting, value: Value) -> Written:
    """A value of a setting of a stream, or of a queue, as it may be written."""
    return value if isinstance(value, str) else quantity(value, setting.kind.unit)


def of_stream(stream: StreamSettings) -> dict[str, Written]:
    """What the configuration says of one stream, as it may be written there."""
    own: dict[str, Written] = {}
    for key in STREAM_KEYS:
        value = getattr(stream, key)
        if value is not None:
            own[key] = list(value) if isinstance(value, tuple) else value
    for name, value in stream.settings.items():
        own[name] = written_of_stream(BOTH[name], value)
    return own

"""A suite's result as the JSON of a file, and back: the same result, or one line that says why not.

Owns the shape of the file. What follows from the rest, `ratios` and `is_behind` of a row, is
written for those that read the file without headrace, and not read.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.bench.suite.results import OURS, SCHEMA, Measured, Result, Row
from headrace.errors import InputError
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")

KIND: Final = "headrace bench suite"
"""Of what wrote the file."""


def to_json(result: Result) -> dict[str, Any]:
    """What `json.dumps` takes; its numbers are finite."""
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "began": result.began,
        "seconds": result.seconds,
        "machine": dict(result.machine),
        "settings": dict(result.settings),
        "peers": dict(result.peers),
        "left_out": dict(result.left_out),
        "resumed": list(result.resumed),
        "rows": [_of_row(row) for row in result.rows],
    }


def _of_row(row: Row) -> dict[str, Any]:
    return {
        "workload": row.workload,
        "title": row.title,
        "source": row.source,
        "mode": row.mode,
        "began": row.began,
        "figure": row.figure,
        "unit": row.unit,
        "less_is_better": row.less_is_better,
        "ours": row.ours,
        "servers": {
            name: {
                "rounds": [dict(figures) for figures in measured.rounds],
                "medians": dict(measured.medians),
                "by_second": list(measured.by_second),
                "trouble": measured.trouble,
            }
            for name, measured in row.servers.items()
        },
        "bounds": dict(row.bounds),
        "at_least": row.at_least,
        "note": row.note,
        "ratios": row.ratios(),
        "is_behind": row.is_behind(),
    }


def read(path: Path) -> Result:
    """The result that a file holds.

    Raises:
        InputError: it cannot be read, is cut, or holds none that this version knows.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, or no JSON
        raise InputError(f"{path}: is cut, or no JSON: {error}") from None
    try:
        return from_json(value)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def from_json(value: object) -> Result:
    """The result that `to_json` wrote; its sequences are tuples.

    Raises:
        InputError: it is something else, something of it is missing, or it is of a later version.
    """
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise InputError(f"no result of `{KIND} --json`")
    schema = value.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise InputError(
            f"is of schema {schema}, and this headrace reads up to {SCHEMA}: take a newer headrace"
        )
    if schema != SCHEMA or type(schema) is not int:
        raise InputError(f"schema must be a number from 1 to {SCHEMA}; got {shown(schema)}")
    return Result(
        began=_field(value, "", "began", _moment),
        seconds=_field(value, "", "seconds", _number),
        machine=_field(value, "", "machine", _object),
        settings=_field(value, "", "settings", _object),
        peers=_field(value, "", "peers", _map_of(_peer)),
        left_out=_field(value, "", "left_out", _map_of(_text)),
        rows=_field(value, "", "rows", _tuple_of(_row)),
        resumed=_field(value, "", "resumed", _tuple_of(_moment)) if "resumed" in value else (),
    )


def _peer(value: object, where: str) -> dict[str, Any]:
    peer = _object(value, where)
    _field(peer, where, "version", _text)
    _field(peer, where, "install", _text)
    _field(peer, where, "promises", _map_of(_map_of(_or_none(_text))))
    return peer


def _row(value: object, where: str) -> Row:
    row = _object(value, where)
    return Row(
        workload=_field(row, where, "workload", _text),
        title=_field(row, where, "title", _text),
        source=_field(row, where, "source", _text),
        mode=_field(row, where, "mode", _text),
        figure=_field(row, where, "figure", _text),
        unit=_field(row, where, "unit", _text),
        less_is_better=_field(row, where, "less_is_better", _flag),
        ours=_field(row, where, "ours", _text) if "ours" in row else OURS,
        servers=_field(row, where, "servers", _map_of(_measured)),
        bounds=_field(row, where, "bounds", _map_of(_number)),
        at_least=_field(row, where, "at_least", _or_none(_number)),
        note=_field(row, where, "note", _text),
        began=_field(row, where, "began", _moment) if row.get("began") else "",
    )


def _measured(value: object, where: str) -> Measured:
    measured = _object(value, where)
    figures = _map_of(_or_none(_number))
    return Measured(
        rounds=_field(measured, where, "rounds", _tuple_of(figures)),
        medians=_field(measured, where, "medians", figures),
        by_second=_field(measured, where, "by_second", _tuple_of(_count)),
        trouble=_field(measured, where, "trouble", _or_none(_text)),
    )


# --- kinds of values: each takes one and where it is --------------------------------------------


def _field(
    value: Mapping[str, object], where: str, name: str, kind: Callable[[object, str], T]
) -> T:
    path = f"{where}.{name}" if where else name
    if name not in value:
        raise InputError(f"{path} is missing")
    return kind(value[name], path)


def _wrong(where: str, what: str, value: object) -> InputError:
    return InputError(f"{where} must be {what}; got {shown(value)}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a text", value)
    return value


def _moment(value: object, where: str) -> str:
    text = _text(value, where)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(where, "a time as in 2030-01-01T00:00:00+00:00", value) from None
    return text


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(where, "a number", value)
    if not abs(value) <= sys.float_info.max:  # NaN too
        raise _wrong(where, "a finite number", value)
    return value


def _count(value: object, where: str) -> int:
    if type(value) is not int or value < 0:
        raise _wrong(where, "a count", value)
    return value


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    return value


def _or_none(kind: Callable[[object, str], T]) -> Callable[[object, str], T | None]:
    return lambda value, where: None if value is None else kind(value, where)


def _tuple_of(kind: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    def read_all(value: object, where: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return tuple(kind(each, f"{where}[{index}]") for index, each in enumerate(value))

    return read_all


def _map_of(kind: Callable[[object, str], T]) -> Callable[[object, str], dict[str, T]]:
    return lambda value, where: {
        name: kind(each, f"{where}[{shown(name)}]") for name, each in _object(value, where).items()
    }

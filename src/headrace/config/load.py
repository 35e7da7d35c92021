"""Reads settings from their four places, the later over the earlier, and explains what is wrong.

Invariant: an error names the place (file, variable or option), the setting, what was found, and
what to do, in one line.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel, ValidationError

from headrace import limits
from headrace.config.schema import Config
from headrace.errors import ConfigError
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PREFIX: Final = "HEADRACE_"
ERRORS_SHOWN_MAX: Final = 3

LATER_TABLES: Final = frozenset({"access", "cluster", "frame", "pipeline", "queues"})
"""Tables that CONTRACT names and this version does not serve."""

Keys = tuple[str, ...]
"""Table and key, and what is inside of it."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
) -> Config:
    """The settings of a node.

    Args:
        file: a TOML file.
        environment: variables; `HEADRACE_TABLE__KEY` among them are read.
        options: of the command line, as `{table: {key: value}}`; None values are not set.

    Raises:
        ConfigError: at most three lines, one for each thing that is wrong.
    """
    merged: dict[str, Any] = {}
    places: dict[Keys, str] = {}
    if file is not None:
        _merge(merged, places, _read(file), lambda path: f"{file}: {_in_file(path)}")
    _merge(merged, places, _from_environment(environment or {}), _variable)
    _merge(merged, places, _from_options(options or {}), _option)
    _refuse_later_tables(merged, places)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(explain(error, Config, lambda path: _place(places, path))) from None


def explain(
    error: ValidationError, model: type[BaseModel], place: Callable[[Keys], str] = ".".join
) -> str:
    """One readable line for each of the first errors.

    Args:
        error: what validation found.
        model: what was validated; its names are the known ones.
        place: how to name the setting at a path.
    """
    lines = []
    for item in error.errors(include_url=False)[:ERRORS_SHOWN_MAX]:
        path = tuple(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"{place(path)}: unknown; {nearest(path[-1], _names(model, path[:-1]))}")
        elif item["type"] == "tuple_type":
            lines.append(f"{place(path)}: must be a list; got {item['input']!r:.200}")
        elif item["type"] == "value_error":
            lines.append(f"{place(path)}: {item['ctx']['error']}")
        else:
            lines.append(f"{place(path)}: {_lower_first(item['msg'])}; got {item['input']!r:.200}")
    return "\n".join(lines)


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(limits.CONFIG_BYTES_MAX + 1)
        if len(text) > limits.CONFIG_BYTES_MAX:
            raise ConfigError(
                f"{file}: is longer than {limits.CONFIG_BYTES_MAX} bytes; is this the right file?"
            )
        return tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: is not TOML: {_lower_first(str(error))}") from None
    except RecursionError:  # tomllib descends once for each level
        raise ConfigError(f"{file}: is nested too deeply; no setting needs that") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        table, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not separator:
            _refuse_single_underscore(variable)
            continue
        if table == "streams":
            raise ConfigError(f"{variable}: streams are declared in the file, under [streams.NAME]")
        tables.setdefault(table, {})[key] = value
    return tables


def _refuse_single_underscore(variable: str) -> None:
    """Refuses a setting whose table is missing or misspelt, and nothing else.

    Other variables pass: HEADRACE_URL, and what Kubernetes sets for a service of this name.
    """
    name = variable.removeprefix(PREFIX).lower()
    for table in Config.model_fields:
        for key in _names(Config, (table,)) if table != "streams" else ():
            if name in {key, f"{table}_{key}"}:
                meant = f"{PREFIX}{table}__{key}".upper()
                raise ConfigError(f"{variable}: no such variable; did you mean {meant}?")


def _from_options(options: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    chosen = {
        table: {key: value for key, value in keys.items() if value is not None}
        for table, keys in options.items()
    }
    return {table: keys for table, keys in chosen.items() if keys}


def _merge(
    merged: dict[str, Any],
    places: dict[Keys, str],
    layer: Mapping[str, Any],
    name: Callable[[Keys], str],
) -> None:
    for table, keys in layer.items():
        if not isinstance(keys, dict) or not keys:
            merged.setdefault(table, keys)
            places[table,] = name((table,))
            continue
        held = merged.get(table)
        if not isinstance(held, dict):
            if held is not None:
                raise ConfigError(
                    f"{places[table,]}: must be a table of settings; got {held!r:.200}"
                )
            held = merged[table] = {}
        places.setdefault((table,), name((table,)))
        for key, value in keys.items():
            held[key] = value
            places[table, key] = name((table, key))


def _in_file(path: Keys) -> str:
    if path[0] == "streams":
        return f"[{'.'.join(path)}]"
    return f"[{path[0]}] {path[1]}" if len(path) > 1 else f"[{path[0]}]"


def _option(path: Keys) -> str:
    if len(path) == 1:
        return f"[{path[0]}]"
    return f"--{path[0] if path[-1] == 'bind' else path[-1].removesuffix('_bind')}"


def _variable(path: Keys) -> str:
    if len(path) == 1:
        return f"[{path[0]}]"
    return PREFIX + "__".join(path).upper()


def _place(places: Mapping[Keys, str], path: Keys) -> str:
    """Where the setting at `path`, or its table, was read."""
    within = [name for key, name in places.items() if key[0] == path[0] and len(key) > 1]
    if path[0] not in Config.model_fields and within:  # its settings show where it is
        return within[0]
    for length in (2, 1):
        named = places.get(path[:length])
        if named is not None:
            rest = path[length:]
            return f"{named} {'.'.join(rest)}" if rest else named
    return f"[{path[0]}]"


def _refuse_later_tables(merged: Mapping[str, Any], places: Mapping[Keys, str]) -> None:
    for table in sorted(LATER_TABLES & merged.keys()):
        place = _place(places, (table,))
        raise ConfigError(f"{place}: [{table}] is not served by this version; remove it")


def _names(model: type[BaseModel], path: Keys) -> list[str]:
    """Known names beside the last part of a path."""
    for part in path:
        field = model.model_fields.get(part)
        candidates = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = [each for each in candidates if isinstance(each, type) and _is_model(each)]
        model = inner[0] if inner else model
    return list(model.model_fields)


def _is_model(candidate: type) -> bool:
    return issubclass(candidate, BaseModel)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
